"""Who holds what: nothing twice, nothing of the target, the same again for the same seed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fdgjax.data import Domains
from fdgjax.errors import UserError
from fdgjax.federation import Partition, federate, pad_rows, partition, pool, stack_seeds
from tests.toys import reorder, toy_federation

LAW = settings(derandomize=True, deadline=None, max_examples=50)
NAMES = ("east", "west", "north", "south")


def domains_of(sizes: tuple[int, ...], seed: int = 0) -> Domains:
    rng = np.random.default_rng(seed)
    domain = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int32)
    images = rng.integers(0, 256, (len(domain), 2, 2, 1), np.uint8)
    return Domains(
        images, rng.integers(0, 3, len(domain)).astype(np.int32), domain, NAMES[: len(sizes)], ("a", "b", "c")
    )


def split(data: Domains, **chosen: object) -> Partition:
    usual = {"target": "west", "clients": 0, "domains_per_client": 1, "validation": 0.25, "shots": 0, "seed": 0}
    return partition(data, **(usual | chosen))


@LAW
@given(
    sizes=st.tuples(*[st.integers(16, 40)] * 4),
    clients=st.integers(0, 5),
    d=st.integers(1, 3),
    shots=st.integers(0, 2),
    fraction=st.floats(0.05, 0.6),
    target=st.sampled_from(NAMES),
    seed=st.integers(0, 99),
)
def test_one_domain_is_left_out_and_nothing_is_used_twice(
    sizes: tuple[int, ...], clients: int, d: int, shots: int, fraction: float, target: str, seed: int
) -> None:
    data, out = domains_of(sizes), NAMES.index(target)
    how = {"clients": clients, "domains_per_client": d, "shots": shots, "target": target, "seed": seed}
    parts = split(data, validation=fraction, **how)
    many = clients or 3
    assert len(parts.train) == len(parts.validation) == many
    used = np.concatenate([*parts.train, *parts.validation, parts.target])
    assert len(np.unique(used)) == len(used)
    if many * d >= 3:
        assert len(used) == sum(sizes), "a sample is left over"
    assert (data.domains[parts.target] == out).all()
    assert len(parts.target) == sizes[out] - shots * many
    for train, held in zip(parts.train, parts.validation, strict=True):
        of_target = data.domains[train] == out
        assert of_target.sum() == shots
        assert not (data.domains[held] == out).any()
        own = np.concatenate([train[~of_target], held])
        assert len(np.unique(data.domains[own])) == d
        assert len(held) == max(1, round(fraction * len(own)))
        assert len(train) > shots


@LAW
@given(seed=st.integers(0, 99))
def test_the_seed_decides(seed: int) -> None:
    data = domains_of((20, 20, 20, 20))
    first, again, other = (split(data, shots=2, seed=s) for s in (seed, seed, seed + 1))
    for left, right in zip(jax.tree.leaves(tuple(first)), jax.tree.leaves(tuple(again)), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not all(np.array_equal(left, right) for left, right in zip(first.validation, other.validation, strict=True))


def test_shots_leave_the_held_out_samples_as_they_are() -> None:
    data = domains_of((20, 20, 20, 20))
    none, some = split(data), split(data, shots=3)
    for left, right in zip(none.validation, some.validation, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"target": "wset"}, "did you mean 'west'"),
        ({"domains_per_client": 4}, "domains_per_client is 4"),
        ({"domains_per_client": 0}, "domains_per_client is 0"),
        ({"clients": 70}, "20 samples"),
        ({"validation": 1.0}, "fraction is 1.0"),
        ({"shots": 7}, "7 shots"),
        ({"shots": -1}, "shots is -1"),
        ({"clients": -1}, "clients is -1"),
    ],
)
def test_what_cannot_be_split_is_named_in_one_line(chosen: dict, named: str) -> None:
    with pytest.raises(UserError, match=named) as error:
        split(domains_of((20, 20, 20, 20)), **chosen)
    assert "\n" not in str(error.value)


ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=5).filter(lambda rows: any(rows))


@LAW
@given(rows=ROWS)
def test_padding_keeps_every_row(rows: list[list[int]]) -> None:
    padded = pad_rows([np.asarray(r, np.int64) for r in rows])
    assert padded.places.dtype == padded.length.dtype == jnp.int32
    assert padded.places.shape == (len(rows), max(map(len, rows)))
    assert [np.asarray(p)[:n].tolist() for p, n in zip(padded.places, np.asarray(padded.length), strict=True)] == rows
    assert np.asarray(padded.places).sum() == sum(map(sum, rows)), "padding is zero"


@LAW
@given(tables=st.lists(st.tuples(*[st.lists(st.integers(0, 99), min_size=1, max_size=6)] * 3), min_size=2, max_size=4))
def test_stacked_seeds_keep_every_row(tables: list[tuple[list[int], ...]]) -> None:
    base = toy_federation()
    seeds = [base._replace(train=pad_rows([np.asarray(r) for r in rows])) for rows in tables]
    stacked = stack_seeds(seeds)
    longest = max(len(r) for rows in tables for r in rows)
    assert stacked.train.places.shape == (len(tables), 3, longest)
    for rows, places, lengths in zip(tables, *map(np.asarray, stacked.train), strict=True):
        assert [p[:n].tolist() for p, n in zip(places, lengths, strict=True)] == list(rows)
    assert stacked.images is base.images
    assert stacked.validation.places.shape == (len(tables), *base.validation.places.shape)


@LAW
@given(batch=st.integers(1, 40), small=st.integers(8, 30))
def test_a_client_that_would_never_train_is_refused_by_name(batch: int, small: int) -> None:
    data = domains_of((30, 30, small, 30))
    parts = split(data)
    federation = federate(data, parts, batch_size=batch, drop_last=False)
    assert np.asarray(federation.train.length).tolist() == [len(r) for r in parts.train]
    short = [client for client, r in enumerate(parts.train) if len(r) < batch]
    if not short:
        federate(data, parts, batch_size=batch, drop_last=True)
        return
    with pytest.raises(UserError, match=f"client {short[0]} holds {len(parts.train[short[0]])} .*drop_last") as error:
        federate(data, parts, batch_size=batch, drop_last=True)
    assert "\n" not in str(error.value)
    assert f"batch_size={batch}" in str(error.value)


def test_a_federation_is_the_data_and_the_partition() -> None:
    data = domains_of((20, 18, 16, 24))
    parts = split(data, shots=1)
    federation = federate(data, parts, batch_size=4, drop_last=False)
    assert federation.images.dtype == jnp.uint8
    assert federation.labels.dtype == federation.domains.dtype == federation.ids.dtype == jnp.int32
    np.testing.assert_array_equal(federation.images, data.images)
    np.testing.assert_array_equal(federation.labels, data.labels)
    assert len(set(np.asarray(federation.ids).tolist())) == 3
    for rows, wanted in ((federation.train, parts.train), (federation.validation, parts.validation)):
        for client, own in enumerate(wanted):
            np.testing.assert_array_equal(rows.places[client, : int(rows.length[client])], own)
    np.testing.assert_array_equal(federation.target.places[0], parts.target)


@LAW
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_pooling_is_all_training_samples_at_one_client(order: list[int]) -> None:
    assume(order)
    federation = reorder(toy_federation(), order)
    pooled = pool(federation)
    wanted = [p for row, n in zip(*map(np.asarray, federation.train), strict=True) for p in row[:n]]
    assert np.asarray(pooled.train.places).tolist() == [wanted]
    assert np.asarray(pooled.train.length).tolist() == [len(wanted)]
    assert len(pooled.ids) == 1
    for name in ("images", "labels", "validation", "target"):
        for left, right in zip(
            jax.tree.leaves(getattr(pooled, name)), jax.tree.leaves(getattr(federation, name)), strict=True
        ):
            np.testing.assert_array_equal(left, right)
