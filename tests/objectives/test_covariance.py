"""Covariance regularisers against NumPy in float64; their minima; padding."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.objectives import covariance_matching, feature_covariance, off_diagonal_covariance

LAW = settings(derandomize=True, deadline=None, max_examples=25)
N, M, REFERENCE = 7, 4, 0.6
SEEDS = st.integers(0, 999)
MASKS = st.lists(st.booleans(), min_size=N, max_size=N)


def matching(features: Any, mask: Any) -> jax.Array:
    return covariance_matching(features, mask, reference=REFERENCE)


GRADIENT = {
    name: jax.jit(jax.value_and_grad(one)) for name, one in (("on", matching), ("off", off_diagonal_covariance))
}


def features_of(seed: int, offset: float = 1.0) -> Any:
    return np.random.default_rng(seed).normal(offset, 1, (N, M)).astype(np.float32)


def loop_losses(features: Any) -> dict[str, float]:
    z = np.asarray(features, np.float64)
    found = np.cov(z, rowvar=False) if len(z) > 1 else np.zeros((M, M))
    on = sum((found[i, j] - REFERENCE * (i == j)) ** 2 for i in range(M) for j in range(M)) / M
    return {"on": on, "off": sum(found[i, j] ** 2 for i in range(M) for j in range(M) if i != j) / M}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["on", "off"])
@LAW
@given(seed=SEEDS, mask=MASKS)
def test_the_formulas(kind: str, seed: int, mask: list[bool]) -> None:
    features = features_of(seed)
    loss, grad = GRADIENT[kind](features, np.array(mask, np.float32))
    np.testing.assert_allclose(loss, loop_losses(features[mask])[kind], rtol=1e-4, atol=1e-6)
    assert np.isfinite(grad).all()
    assert not np.any(grad[~np.array(mask)])
    if sum(mask) < 2:
        assert not np.any(grad)


@pytest.mark.parametrize("kind", ["on", "off"])
def test_the_gradient(kind: str) -> None:
    features, step = np.float64(features_of(3)), 1e-5
    _, grad = GRADIENT[kind](np.float32(features), np.ones(N, np.float32))
    for i, j in np.ndindex(N, M):
        shift = np.zeros((N, M))
        shift[i, j] = step
        slope = (loop_losses(features + shift)[kind] - loop_losses(features - shift)[kind]) / (2 * step)
        np.testing.assert_allclose(grad[i, j], slope, rtol=1e-3, atol=1e-5)


@LAW
@given(seed=SEEDS)
def test_whitened_features_are_the_minimum(seed: int) -> None:
    z = np.random.default_rng(seed).normal(size=(N, M))
    orthonormal, _ = np.linalg.qr(z - z.mean(axis=0))
    spread = np.float32(orthonormal * np.sqrt(N - 1))
    everything = np.ones(N, np.float32)
    loss, grad = GRADIENT["on"](spread * np.float32(np.sqrt(REFERENCE)), everything)
    np.testing.assert_allclose(loss, 0, atol=1e-10)
    np.testing.assert_allclose(grad, np.zeros_like(grad), atol=1e-5)
    # The variances are free.
    loss, grad = GRADIENT["off"](spread * np.array([1, 2, 3, 0.5], np.float32), everything)
    np.testing.assert_allclose(loss, 0, atol=1e-9)
    np.testing.assert_allclose(grad, np.zeros_like(grad), atol=1e-5)


@pytest.mark.parametrize("one", [feature_covariance, matching, off_diagonal_covariance])
def test_neither_padding_nor_a_shift_nor_order_matters(one: Callable[..., jax.Array]) -> None:
    features = features_of(5)
    shown = one(features, np.ones(N, np.float32))
    order = np.random.default_rng(5).permutation(N + 2)
    for junk in (1e3, np.inf, np.nan):
        padded = np.concatenate([features + np.float32(2), np.full((2, M), junk, np.float32)])[order]
        mask = (np.arange(N + 2) < N)[order].astype(np.float32)
        chex.assert_trees_all_close(one(padded, mask), shown, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["on", "off"])
def test_clients_as_an_axis_change_nothing(kind: str) -> None:
    stacked = np.stack([features_of(seed) for seed in range(3)])
    together = jax.vmap(GRADIENT[kind], in_axes=(0, None))(stacked, np.ones(N, np.float32))
    for i in range(3):
        alone = GRADIENT[kind](stacked[i], np.ones(N, np.float32))
        chex.assert_trees_all_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone, rtol=1e-5, atol=1e-6)


def test_without_a_mask_all_are_samples() -> None:
    features = features_of(2)
    np.testing.assert_allclose(feature_covariance(features), np.cov(features, rowvar=False), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("samples", "dimension"), [(14, 64), (64, 64)])
def test_what_white_features_are_expected_to_have(samples: int, dimension: int) -> None:
    """(m + 1) / (n - 1): why UAP leaves small partial batches out (5 for 14 samples of 64 features)."""
    rng = np.random.default_rng(0)
    term = jax.jit(lambda z: covariance_matching(z, reference=1.0))
    losses = [float(term(rng.normal(size=(samples, dimension)).astype(np.float32))) for _ in range(100)]
    assert np.mean(losses) == pytest.approx((dimension + 1) / (samples - 1), rel=0.02)
