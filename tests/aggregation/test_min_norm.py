"""The min-norm point: what a shortest vector of a convex hull must satisfy, and the official code's numbers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.aggregation import min_norm
from fdgjax.aggregation.min_norm import simplex_weights
from fdgjax.utils.errors import UserError

LAW = settings(derandomize=True, deadline=None, max_examples=60)
SOLVE = jax.jit(simplex_weights)
RULE = jax.jit(min_norm, static_argnames=("scope", "normalize"))


@pytest.mark.parametrize("case", range(6))
def test_the_official_codes_aggregates(case: int, conformance: Path) -> None:
    data = np.load(conformance / "fdse_min_norm.npz")
    wanted = data[f"aggregate_{case}"]
    got, _ = RULE(jnp.asarray(data[f"updates_{case}"], jnp.float32))
    assert np.linalg.norm(got - wanted) <= 1e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("scope", ["leaf", "tree"])
@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e19, 1e30])
def test_the_scale_of_all_updates_does_not_matter(scale: float, scope: str) -> None:
    rng = np.random.default_rng(3)
    updates = {"a": rng.normal(size=(4, 3)), "b": rng.normal(size=(4, 2, 2))}
    plain, coefficients = RULE({k: jnp.asarray(v, jnp.float32) for k, v in updates.items()}, scope=scope)
    scaled, same = RULE({k: jnp.asarray(scale * v, jnp.float32) for k, v in updates.items()}, scope=scope)
    for name in updates:
        np.testing.assert_allclose(np.asarray(scaled[name], np.float64) / scale, plain[name], rtol=1e-4, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), same, coefficients)


@st.composite
def clouds(draw: st.DrawFn) -> np.ndarray:
    """Points `[n, d]`: apart, flat, far from zero, repeated or opposed, some of them zero."""
    # Few shapes: each is compiled anew.
    n, d = draw(st.sampled_from([2, 3, 5, 12])), draw(st.sampled_from([1, 2, 6]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    points = rng.normal(size=(n, d)) + draw(st.sampled_from([0.0, 1.0, 30.0])) * rng.normal(size=d)
    kind = draw(st.sampled_from(["plain", "repeated", "opposed", "zero"]))
    points[n // 2 :] = {
        "plain": points[n // 2 :],
        "repeated": points[rng.integers(0, n // 2, n - n // 2)],
        "opposed": -points[rng.integers(0, n // 2, n - n // 2)],
        "zero": points[n // 2 :] * rng.integers(0, 2, (n - n // 2, 1)),
    }[kind]
    return points / np.abs(points).max()


@pytest.mark.slow
@LAW
@given(points=clouds())
def test_no_vertex_makes_the_point_shorter(points: np.ndarray) -> None:
    gram = points @ points.T
    w = np.asarray(SOLVE(jnp.asarray(gram, jnp.float32), jnp.ones(len(points), bool)), np.float64)
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1, abs=1e-5)
    # The optimality condition of the quadratic program: <p, p_i> >= <p, p> for all i.
    assert (gram @ w >= w @ gram @ w - 1e-4 * np.abs(gram).max()).all()


@pytest.mark.slow
@LAW
@given(points=clouds(), normalize=st.booleans())
def test_it_goes_against_nobody(points: np.ndarray, normalize: bool) -> None:
    update, coefficients = RULE(jnp.asarray(points, jnp.float32), normalize=normalize)
    assert (np.asarray(coefficients) >= 0).all()
    lengths = np.linalg.norm(points, axis=1)
    assert (points @ np.asarray(update) >= -2e-4 * lengths.max() ** 2).all()


@pytest.mark.parametrize(
    ("b", "wanted"), [((0.0, 1.0), (0.5, 0.5)), ((-1.0, 0.0), (0.0, 0.0)), ((1.0, 0.0), (1.0, 0.0))]
)
def test_two_updates(b: tuple[float, float], wanted: tuple[float, float]) -> None:
    update, _ = RULE(jnp.array([(1.0, 0.0), b]))
    np.testing.assert_allclose(update, wanted, atol=1e-6)


def test_the_length_is_the_mean_of_the_lengths_where_directions_agree() -> None:
    update, _ = RULE(jnp.array([(1.0, 1.0), (3.0, 3.0), (0.0, 0.0)]), jnp.array([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(update, np.ones(2), rtol=1e-5)


@pytest.mark.slow
def test_many_clients_and_many_leaves_at_once() -> None:
    rng = np.random.default_rng(0)
    points = jnp.asarray(rng.normal(size=(5, 64, 40)) + 0.5, jnp.float32)
    grams = jnp.einsum("lid,ljd->lij", points, points)
    allowed = jnp.asarray(rng.integers(0, 2, (5, 64)), bool)
    together = jax.jit(jax.vmap(simplex_weights))(grams, allowed)
    for gram, may, w in zip(grams, allowed, together, strict=True):
        np.testing.assert_allclose(w, SOLVE(gram, may), atol=1e-4)
        assert not np.asarray(w)[~np.asarray(may)].any()
        pull = np.asarray(gram @ w)[np.asarray(may)]
        assert pull.min() >= float(w @ gram @ w) - 1e-2


@pytest.mark.slow
def test_of_many_clients_a_third_is_left_out() -> None:
    """Where several vertices at a time leave and enter, it is the same point: nobody's product with it is smaller."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(64, 120)) + 0.4 * rng.normal(size=120)
    gram = points @ points.T / 120
    allowed = np.arange(64) != 7
    w = np.asarray(SOLVE(jnp.asarray(gram, jnp.float32), jnp.asarray(allowed)), np.float64)
    assert 10 < np.sum(w == 0) < 54
    assert w[7] == 0
    square = w @ gram @ w
    assert square > 1e-3
    assert (gram @ w)[allowed].min() >= square - 1e-5


@pytest.mark.slow
def test_each_leaf_has_a_point_of_its_own() -> None:
    updates: dict[str, Any] = {"a": jnp.array([(1.0, 0.0), (0.0, 1.0)]), "b": jnp.array([1.0, 1.0])}
    _, by_leaf = RULE(updates)
    assert set(by_leaf) == {"a", "b"}
    update, together = RULE(updates, scope="tree")
    assert together.shape == (2,)
    flat = jnp.concatenate([updates["a"], updates["b"][:, None]], axis=1)
    np.testing.assert_allclose(jnp.append(update["a"], update["b"]), RULE(flat)[0], rtol=1e-5)


def test_an_unknown_scope_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown scope 'layer'; expected one of: "):
        min_norm(jnp.ones((2, 2)), scope="layer")
