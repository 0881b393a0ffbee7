import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.data.sources.domains import Domains
from fdgjax.data.splits import few_shot, hold_out, source_domains, split_domains, three_parts
from fdgjax.utils.errors import UserError

SIZES = st.lists(st.integers(40, 80), min_size=1, max_size=6)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def samples_of(sizes: list[int], seed: int) -> np.ndarray:
    """The domain of each sample, domain k `sizes[k]` times, in random order."""
    return generator(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@given(sizes=SIZES, clients=st.integers(1, 40), data=st.data(), seed=st.integers(0, 9))
def test_each_client_gets_exactly_d_domains(sizes: list[int], clients: int, data: st.DataObject, seed: int) -> None:
    kinds = len(sizes)
    d = data.draw(st.integers(1, kinds))
    domains = samples_of(sizes, seed)
    rows = split_domains(domains, range(kinds), clients=clients, domains_per_client=d, rng=generator(seed))
    assert len(rows) == clients
    assert all(len(np.unique(domains[of_client])) == d for of_client in rows)
    together = np.concatenate(rows)
    assert len(np.unique(together)) == len(together)
    # Algorithm 5: a parts of each domain, a + 1 of the b largest; within a domain they are equal up to one.
    a, b = divmod(clients * d, kinds)
    largest_first = np.argsort([-size for size in sizes], kind="stable")
    for rank, domain in enumerate(largest_first):
        held = [int(np.sum(domains[of_client] == domain)) for of_client in rows]
        parts = [size for size in held if size]
        assert len(parts) == a + (rank < b)
        if parts:
            assert sum(parts) == sizes[domain]
            assert max(parts) - min(parts) <= 1


@given(sizes=SIZES, seed=st.integers(0, 9))
def test_one_domain_each_gives_client_i_source_i(sizes: list[int], seed: int) -> None:
    domains = samples_of(sizes, seed)
    kinds = len(sizes)
    rows = split_domains(domains, range(kinds), clients=kinds, domains_per_client=1, rng=generator(seed))
    for source, of_client in enumerate(rows):
        np.testing.assert_array_equal(of_client, np.flatnonzero(domains == source))


def test_split_is_fixed_by_the_generator_and_varies_with_it() -> None:
    domains = samples_of([40, 50, 60], 0)
    first, again, other = (
        split_domains(domains, (0, 1, 2), clients=4, domains_per_client=2, rng=generator(seed)) for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_fewer_parts_than_domains_use_the_largest() -> None:
    domains = samples_of([10, 40, 20, 30], 0)
    rows = split_domains(domains, range(4), clients=1, domains_per_client=2, rng=generator(0))
    assert sorted(np.unique(domains[rows[0]])) == [1, 3]


def test_any_two_domains_may_be_dealt_to_one_client() -> None:
    domains = samples_of([40, 40, 40, 40], 0)
    dealt = (split_domains(domains, range(4), clients=2, domains_per_client=2, rng=generator(s)) for s in range(40))
    assert {tuple(np.unique(domains[first])) for first, _ in dealt} == {(0, 1), (0, 2), (0, 3)}


def test_target_is_never_split() -> None:
    domains = samples_of([40, 50, 60], 0)
    rows = split_domains(domains, (0, 2), clients=3, domains_per_client=2, rng=generator(0))
    assert not (domains[np.concatenate(rows)] == 1).any()


@pytest.mark.parametrize(
    ("clients", "per_client", "sources", "message"),
    [
        (0, 1, (0, 1), "clients got 0"),
        (2, 3, (0, 1), "domains_per_client got 3; expected 1 to 2"),
        (2, 0, (0, 1), "domains_per_client got 0"),
        (2, 1, (0, 0), "name a domain twice"),
        (9, 1, (0, 1), "a client would be left without data"),
        (1, 1, (5,), "a client would be left without data"),
    ],
)
def test_impossible_splits_are_refused(clients: int, per_client: int, sources: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        split_domains(np.repeat([0, 1], 3), sources, clients=clients, domains_per_client=per_client, rng=generator(0))


def tiny(*names: str) -> Domains:
    return Domains(np.zeros((0, 1, 1, 1), np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int32), names, ("a",))


def test_source_domains_are_all_but_the_target() -> None:
    data = tiny("art", "cartoon", "photo")
    assert source_domains(data, "cartoon") == (0, 2)
    with pytest.raises(UserError, match="did you mean 'photo'"):
        source_domains(data, "photos")
    with pytest.raises(UserError, match="only domain"):
        source_domains(tiny("photo"), "photo")
    assert source_domains(data, "cartoon", ["photo"]) == (0,)
    for excluded, words in (
        (["cartoon"], "'cartoon', which is data.target, too"),
        (["photos"], "did you mean 'photo'"),
        (["art", "photo"], "art,photo, which leaves none to train on"),
    ):
        with pytest.raises(UserError, match=words):
            source_domains(data, "cartoon", excluded)


@given(size=st.integers(2, 200), fraction=st.floats(0.001, 0.999), seed=st.integers(0, 9))
def test_hold_out_cuts_in_two(size: int, fraction: float, seed: int) -> None:
    rows = generator(seed).permutation(10 * size)[:size]
    train, held = hold_out(rows, fraction=fraction, rng=generator(seed))
    assert sorted([*train, *held]) == sorted(rows)
    assert len(train) >= 1
    assert len(held) >= 1
    assert abs(len(held) - fraction * size) <= 1


@pytest.mark.parametrize(("size", "fraction"), [(1, 0.5), (0, 0.5), (9, 0.0), (9, 1.0), (9, float("nan"))])
def test_impossible_hold_out_is_refused(size: int, fraction: float) -> None:
    with pytest.raises(UserError, match=r"hold|held"):
        hold_out(np.arange(size), fraction=fraction, rng=generator(0))


@pytest.mark.parametrize(("size", "validation", "test"), [(2, 0.1, 0.1), (0, 0.1, 0.1), (10, 0.5, 0.5), (10, 0.9, 0.1)])
def test_three_parts_leave_something_to_train_on(size: int, validation: float, test: float) -> None:
    with pytest.raises(UserError, match=f"oslo has {size} samples"):
        three_parts(np.arange(size), validation=validation, test=test, rng=generator(0), whose="oslo")


def test_parts_that_are_whole_numbers_lose_no_sample_to_rounding() -> None:
    parts = three_parts(np.arange(100), validation=0.29, test=0.58, rng=generator(0))
    assert 0.29 * 100 < 29
    assert list(map(len, parts)) == [13, 29, 58]


@given(clients=st.integers(1, 5), shots=st.integers(0, 12), classes=st.integers(1, 7), seed=st.integers(0, 9))
def test_shots_are_drawn_once_and_spread_over_classes(clients: int, shots: int, classes: int, seed: int) -> None:
    labels = generator(seed).permutation(np.tile(np.arange(classes), 80))
    target = np.flatnonzero(np.arange(len(labels)) % 80 < 79)
    if len(target) <= clients * shots:
        return
    given_out, left = few_shot(target, labels, clients=clients, shots=shots, rng=generator(seed))
    assert [len(rows) for rows in given_out] == [shots] * clients
    assert sorted(np.concatenate([*given_out, left]).tolist()) == sorted(target.tolist())
    plenty = np.bincount(labels[target], minlength=classes).min() >= clients * shots
    if plenty:
        for rows in given_out:
            assert np.ptp(np.bincount(labels[rows], minlength=classes)) <= 1


def test_any_class_may_be_that_of_a_single_shot() -> None:
    labels = np.tile(np.arange(4), 10)
    dealt = (few_shot(np.arange(40), labels, clients=1, shots=1, rng=generator(seed)) for seed in range(40))
    assert {int(labels[rows[0]]) for (rows,), _ in dealt} == {0, 1, 2, 3}


def test_shots_survive_a_missing_and_a_rare_class() -> None:
    labels = np.array([0] * 10 + [2] + [3] * 10)
    given_out, left = few_shot(np.arange(21), labels, clients=2, shots=10, rng=generator(0))
    assert sorted(np.concatenate([*given_out, left]).tolist()) == list(range(21))


@pytest.mark.parametrize(("clients", "shots"), [(2, 5), (1, 10), (1, -1), (0, 1)])
def test_impossible_shots_are_refused(clients: int, shots: int) -> None:
    with pytest.raises(UserError, match="shots"):
        few_shot(np.arange(10), np.zeros(10, int), clients=clients, shots=shots, rng=generator(0))
