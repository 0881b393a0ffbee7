"""Heterogeneous splits: every sample at one client, the limits of lambda and alpha, one domain's draws its own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.data.federation import Partition
from fdgjax.data.heterogeneity import Streams, mixed_domains, rounded, shares, skewed_labels
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.utils.errors import UserError
from tests.toys import domains_of

LAW = settings(derandomize=True, deadline=None, max_examples=60)
SIZES = st.lists(st.integers(40, 90), min_size=1, max_size=5)
LAMBDA = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])


def streams(seed: int) -> Streams:
    return lambda domain: np.random.default_rng([seed, domain])


def domains_like(sizes: list[int]) -> np.ndarray:
    return np.random.default_rng(5).permutation(np.repeat(np.arange(len(sizes)), sizes))


def counts_of(rows: list[np.ndarray], kinds: np.ndarray) -> np.ndarray:
    """Samples of each kind at each client."""
    return np.stack([np.bincount(kinds[of_client], minlength=kinds.max() + 1) for of_client in rows])


@LAW
@given(sizes=SIZES, clients=st.integers(1, 12), homogeneity=LAMBDA, seed=st.integers(0, 9))
def test_every_sample_is_at_one_client_and_numbers_are_the_formulas(
    sizes: list[int], clients: int, homogeneity: float, seed: int
) -> None:
    domains, kinds = domains_like(sizes), len(sizes)
    rows = mixed_domains(domains, range(kinds), clients=clients, homogeneity=homogeneity, streams=streams(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(domains)))
    counts = counts_of(rows, domains)
    assert counts.sum(axis=1).all()
    alone = shares(np.array(sizes), clients)
    wanted = (1 - homogeneity) * alone + homogeneity * np.array(sizes) / clients
    assert np.abs(counts - wanted).max() < 1
    if homogeneity == 1:
        assert np.ptp(counts, axis=0).max() <= 1, "clients differ"
    if homogeneity == 0:
        assert not counts[alone == 0].any(), "a client has a sample of a domain that is not its own"
        assert ((counts > 0).sum(axis=1) == 1).all() or clients < kinds
        assert ((counts > 0).sum(axis=0) == 1).all() or clients > kinds


@LAW
@given(sizes=SIZES, more=st.integers(0, 7))
def test_clients_go_to_the_domains_with_the_most_samples_a_client(sizes: list[int], more: int) -> None:
    holders = (shares(np.array(sizes), len(sizes) + more) > 0).sum(axis=0)
    # No domain could give a client to another whose clients would still have more samples.
    for domain, count in enumerate(holders):
        assert all(sizes[domain] / (count - 1) >= sizes[o] / holders[o] for o in range(len(sizes)) if count > 1)


def test_few_clients_take_whole_domains_the_largest_first() -> None:
    # 40 to the first, 25 and 20 to the second, which then has 45, and 10 to the first.
    np.testing.assert_array_equal(shares(np.array([10, 40, 20, 25]), 2), [[10, 40, 0, 0], [0, 0, 20, 25]])


@LAW
@given(parts=st.lists(st.floats(0, 20), min_size=1, max_size=6))
def test_rounding_keeps_the_sum_and_stays_beside_each_number(parts: list[float]) -> None:
    exact = np.array(parts) * (round(sum(parts)) / sum(parts) if sum(parts) else 1)
    whole = rounded(exact, round(float(exact.sum())))
    assert whole.sum() == round(float(exact.sum()))
    assert np.abs(whole - exact).max() < 1 + 1e-5


def test_of_remainders_that_are_equal_up_to_rounding_the_first_are_rounded_up() -> None:
    for exact in ([0.5, 0.5 + 2.0**-51], [0.5 + 2.0**-51, 0.5]):
        assert rounded(np.array(exact), 1).tolist() == [1, 0]


@LAW
@given(
    sizes=SIZES,
    clients=st.integers(6, 9),
    homogeneity=LAMBDA,
    alpha=st.sampled_from([1e-3, 0.3, 5.0, 1e6]),
    seed=st.integers(0, 9),
)
def test_skewed_labels_keep_each_clients_number_of_every_domain(
    sizes: list[int], clients: int, homogeneity: float, alpha: float, seed: int
) -> None:
    domains = domains_like(sizes)
    labels = np.random.default_rng(seed).integers(0, 4, len(domains))
    plain = mixed_domains(domains, range(len(sizes)), clients=clients, homogeneity=homogeneity, streams=streams(seed))
    rows = skewed_labels(plain, domains, labels, alpha=alpha, streams=streams(seed))
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(domains)))
    np.testing.assert_array_equal(counts_of(rows, domains), counts_of(plain, domains))
    assert all((np.diff(of_client) > 0).all() for of_client in rows)


def by_class(alpha: float, seed: int = 0) -> np.ndarray:
    """Classes at eight clients of one domain with 200 samples of each of four classes."""
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(4), 200))
    domains, plain = np.zeros(800, np.int64), np.array_split(np.arange(800), 8)
    return counts_of(skewed_labels(plain, domains, labels, alpha=alpha, streams=streams(seed)), labels)


def test_alpha_goes_from_one_class_a_client_to_the_domains_own_mixture() -> None:
    # Multinomial draws of 100 have a deviation of 4.3 around the 25 of each class.
    assert np.abs(by_class(1e6) - 25).max() < 20
    # Classes divide evenly here, and with a tiny alpha every client wishes one class.
    assert (by_class(1e-5).max(axis=1) >= 75).mean() > 0.5
    spread = [np.mean([by_class(alpha, seed).std(axis=1).mean() for seed in range(5)]) for alpha in (0.1, 1, 10, 1000)]
    assert spread == sorted(spread, reverse=True)


def test_with_a_large_alpha_a_rare_class_is_as_rare_at_every_client() -> None:
    labels, plain = np.repeat([0, 1], [720, 80]), np.array_split(np.arange(800), 8)
    rows = skewed_labels(plain, np.zeros(800, np.int64), labels, alpha=1e6, streams=streams(0))
    # Ten of a hundred, with a deviation of three.
    assert counts_of(rows, labels)[:, 1].max() < 25


HOW: dict[str, Any] = {"target": "west", "clients": 5, "homogeneity": 0.3, "label_skew": 0.5}


def split(data: Domains, protocol: str = "leave_one_out", **chosen: Any) -> Partition:
    return PROTOCOLS[protocol].split(data, SplitSpec(**(HOW | chosen)))


def test_the_seed_decides_and_another_domains_labels_do_not() -> None:
    data = domains_of((40, 30, 50, 60))
    first, again, other = (split(data, seed=seed) for seed in (3, 3, 4))
    assert all(map(np.array_equal, first.train, again.train))
    assert not any(map(np.array_equal, first.train, other.train))
    east = data.domains == 0
    changed = data._replace(labels=np.where(east, data.labels[::-1], data.labels))
    of_client = lambda parts, i: np.concatenate([parts.train[i], parts.validation[i]])  # noqa: E731
    moved = split(changed, seed=3)
    for i in range(5):
        before, after = (np.sort(rows[~east[rows]]) for rows in (of_client(first, i), of_client(moved, i)))
        np.testing.assert_array_equal(before, after)
    assert any(not np.array_equal(of_client(first, i), of_client(moved, i)) for i in range(5))


@pytest.mark.parametrize("protocol", ["leave_one_out", "labelled_server"])
def test_protocols_deal_all_source_samples_and_none_of_the_target(protocol: str) -> None:
    data = domains_of((40, 30, 50, 60))
    parts = split(data, protocol, **({"server": "south"} if protocol == "labelled_server" else {}))
    assert len(parts.train) == 5
    used = np.concatenate([*parts.train, *parts.validation, parts.target, parts.server])
    np.testing.assert_array_equal(np.sort(used), np.arange(180))
    np.testing.assert_array_equal(parts.target, np.flatnonzero(data.domains == 1))


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"homogeneity": 1.5}, "homogeneity got 1.5"),
        ({"homogeneity": float("nan"), "label_skew": 0.0}, "homogeneity got nan"),
        ({"clients": 0, "homogeneity": 0.0}, "every domain is at one client"),
        ({"clients": 200}, "client [0-9]+ would be left without data; use fewer clients"),
        ({"clients": -1}, "clients got -1"),
        ({"label_skew": -1.0}, "config.data.label_skew got -1"),
    ],
)
def test_what_cannot_be_dealt_is_named_in_one_line(chosen: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as error:
        split(domains_of((40, 30, 50, 60)), **chosen)
    assert "\n" not in str(error.value)
