"""Robust rules compute what their papers say, and hostile clients cannot take the result far from the honest ones."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import ROBUST, centered_clipping, geometric_median, nearest_neighbour_mixing
from fdgjax.aggregation.robust import RobustSettings
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow

N, SIZE, HOSTILE = 7, 3, 2
JITTED: Mapping[str, Any] = {
    name: jax.jit(lambda u, w, entry=entry: entry.apply(u, w, RobustSettings(HOSTILE)))
    for name, entry in ROBUST.items()
}
every_rule = pytest.mark.parametrize("name", mostly_slow(sorted(ROBUST), ("centered_clipping", "krum", "trimmed_mean")))
MIXED = jax.jit(lambda u, w: nearest_neighbour_mixing(u, w, hostile=HOSTILE))


def run(name: str, updates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    update, shares = JITTED[name]({"a": updates[:, :2], "b": updates[:, 2]}, np.ones(N, np.float32))
    return np.append(update["a"], update["b"]), np.asarray(shares)


def draw(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(N, SIZE)) + rng.normal(size=SIZE)).astype(np.float32)


def diameter(points: np.ndarray) -> float:
    return float(np.linalg.norm(points[:, None] - points[None], axis=2).max())


@pytest.mark.slow
@every_rule
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    scale=st.sampled_from([0.1, 1.0, 10.0, 1e3, 1e6, 1e15]),
    together=st.booleans(),
    places=st.permutations(range(N)),
    mixing=st.booleans(),
)
def test_hostile_clients_leave_the_result_within_reach_of_the_honest(
    name: str, seed: int, scale: float, together: bool, places: list[int], mixing: bool
) -> None:
    updates, hostile = draw(seed), places[:HOSTILE]
    honest = updates[places[HOSTILE:]]
    forged = np.random.default_rng(seed + 1).normal(size=(HOSTILE, SIZE)) * scale
    updates[hostile] = forged[:1] if together else forged
    result, _ = run(name, np.asarray(MIXED(updates, np.ones(N, np.float32))[0]) if mixing else updates)
    # Krum's choice is within sqrt(n - f - 2) diameters of an honest update; the geometric median within
    # 2 (n - f) / (n - 2f) radii of their centre.
    assert np.linalg.norm(result - honest.mean(axis=0)) <= 4 * diameter(honest)
    if name in ("median", "trimmed_mean") and not mixing:
        slack = 1e-5 * np.abs(honest).max()
        assert (result >= honest.min(axis=0) - slack).all()
        assert (result <= honest.max(axis=0) + slack).all()


@every_rule
def test_without_a_defence_the_mean_follows_one_client(name: str) -> None:
    """The property above can fail: the mean breaks it, and so does each rule with more hostile clients than honest."""
    updates = draw(3)
    assert np.linalg.norm(np.append(updates[1:], [[1e6] * SIZE], axis=0).mean(axis=0)) > 4 * diameter(updates)
    updates[: N - HOSTILE] = 1e6 + updates[: N - HOSTILE]
    assert np.linalg.norm(run(name, updates)[0]) > 1e3


def by_the_book(name: str, updates: np.ndarray) -> np.ndarray:
    """The papers' definitions, client by client in float64."""
    u = updates.astype(np.float64)
    if name in ("median", "trimmed_mean"):
        return np.median(u, axis=0) if name == "median" else np.sort(u, axis=0)[HOSTILE:-HOSTILE].mean(axis=0)
    squared = np.sort(((u[:, None] - u[None]) ** 2).sum(axis=2), axis=1)[:, 1:]
    order = np.argsort(squared[:, : N - HOSTILE - 2].sum(axis=1))
    return u[order[0]] if name == "krum" else u[order[: N - HOSTILE]].mean(axis=0)


@pytest.mark.parametrize(
    "name", mostly_slow(("median", "trimmed_mean", "krum", "multi_krum"), ("trimmed_mean", "krum"))
)
def test_rules_are_those_of_the_papers(name: str) -> None:
    for seed in range(5):
        np.testing.assert_allclose(run(name, draw(seed))[0], by_the_book(name, draw(seed)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "nearest"), [pytest.param("krum", [1], marks=pytest.mark.slow), ("multi_krum", [0, 1, 2, 3, 4])]
)
def test_scores_are_told_apart_that_differ_by_more_than_rounding(name: str, nearest: list[int]) -> None:
    """Of many parameters, noisy updates are nearly equally far from each other, the hostile ones included."""
    lengths = np.asarray([1.00012, 1.0, 1.00006, 1.00003, 1.00009, 1.00018, 1.00015])
    shares = ROBUST[name].apply(np.diag(lengths).astype(np.float32), None, RobustSettings(HOSTILE))[1]
    assert np.flatnonzero(shares).tolist() == nearest


@pytest.mark.parametrize("common", [0.0, 1e3])
def test_scores_are_averaged_that_are_equal_up_to_rounding(common: float) -> None:
    """So it does where a large common part leaves float32 little of the distances, which it then must not order by."""
    for seed in range(5):
        turned = common + np.linalg.qr(np.random.default_rng(seed).normal(size=(N, N)))[0]
        shares = ROBUST["krum"].apply(turned.astype(np.float32), None, RobustSettings(HOSTILE))[1]
        np.testing.assert_allclose(shares, np.full(N, 1 / N), rtol=1e-6)


def test_mixing_averages_the_nearest_and_sees_only_who_counts() -> None:
    for seed in range(5):
        updates, weights = draw(seed), np.asarray([1, 1, 0, 2, 5, 1, 1], np.float32)
        updates[2] = np.nan
        mixed, shares = MIXED({"a": updates[:, :2], "b": updates[:, 2]}, weights)
        got = np.concatenate([mixed["a"], np.asarray(mixed["b"])[:, None]], axis=1)
        seen = updates.astype(np.float64)[weights > 0]
        squared = ((seen[:, None] - seen[None]) ** 2).sum(axis=2)
        nearest = np.argsort(squared, axis=1)[:, : len(seen) - HOSTILE]
        np.testing.assert_allclose(got[weights > 0], seen[nearest].mean(axis=1), rtol=1e-4, atol=1e-5)
        assert (got[2] == 0).all()
        np.testing.assert_allclose(np.asarray(shares).sum(axis=1), 1, rtol=1e-6)
        assert (np.asarray(shares)[weights > 0, 2] == 0).all()


def test_after_mixing_the_honest_are_their_mean_where_the_hostile_stand_apart() -> None:
    updates = draw(4)
    updates[:HOSTILE] = 1e6 + updates[:HOSTILE]
    mean = updates[HOSTILE:].mean(axis=0)
    mixed = np.asarray(MIXED(updates, np.ones(N, np.float32))[0])
    np.testing.assert_allclose(mixed[HOSTILE:], np.tile(mean, (N - HOSTILE, 1)), rtol=1e-4, atol=1e-5)
    for name in ("median", "trimmed_mean", "krum"):
        np.testing.assert_allclose(run(name, mixed)[0], mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [geometric_median, centered_clipping])
@pytest.mark.parametrize("together", [False, True])
def test_the_centres_withstand_three_hostile_clients_of_seven(rule: Any, together: bool) -> None:
    """One more and they would be the majority."""
    find = jax.jit(rule)
    for seed in range(5):
        updates, rng = draw(seed), np.random.default_rng(seed)
        honest, updates[4:] = updates[:4].copy(), 1e6 * rng.normal(size=(1 if together else 3, SIZE))
        assert np.linalg.norm(np.asarray(find(updates)[0]) - honest.mean(axis=0)) <= 4 * diameter(honest)


@pytest.mark.slow
def test_no_point_near_the_geometric_median_is_nearer_to_the_updates() -> None:
    updates = draw(1)
    centre, _ = jax.jit(lambda u: geometric_median(u, steps=200))(updates)

    def far(point: np.ndarray) -> float:
        return float(np.linalg.norm(updates.astype(np.float64) - point, axis=1).sum())

    for step in np.random.default_rng(0).normal(size=(20, SIZE)):
        assert far(np.asarray(centre)) <= far(np.asarray(centre) + 0.05 * step)


def test_a_wide_radius_clips_nothing_and_steps_are_counted() -> None:
    updates = draw(2)
    mean, _ = jax.jit(lambda u: centered_clipping(u, radius=1e3, steps=1))(updates)
    np.testing.assert_allclose(mean, updates.mean(axis=0), rtol=1e-5, atol=1e-6)
    for rule in (geometric_median, centered_clipping):
        with pytest.raises(UserError, match="got steps=0; expected at least 1"):
            rule(updates, steps=0)
    with pytest.raises(UserError, match=r"got radius=-1.0; expected 0"):
        centered_clipping(updates, radius=-1.0)


def test_mixing_averages_neighbours_that_are_equally_far_up_to_rounding() -> None:
    """The corners of a turned simplex are equally far from each other, in float32 up to rounding."""
    for seed in range(5):
        turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(N, N)))[0].astype(np.float32)
        mixed, shares = MIXED(turned, np.ones(N, np.float32))
        np.testing.assert_allclose(shares, np.full((N, N), 1 / N), rtol=1e-5)
        np.testing.assert_allclose(mixed, np.broadcast_to(turned.mean(axis=0), turned.shape), atol=1e-6)
