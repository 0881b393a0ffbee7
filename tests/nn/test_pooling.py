"""Pooling against Flax, PyTorch's numbers, and the definition of a sub-gradient."""

from functools import partial
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import lax

from fdgjax.nn import adaptive_avg_pool, avg_pool, max_pool
from fdgjax.nn.pooling import bin_means
from fdgjax.utils.errors import UserError

CASES = [
    (2, 2, "VALID"),
    (3, 1, "SAME"),
    (3, 2, "VALID"),
    (2, 2, "SAME"),
    (3, 2, [(1, 0), (1, 1)]),
    (4, 1, [(0, 2), (1, 3)]),
]


def images(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def mean_window(x: jax.Array, window: int, strides: int, padding: Any) -> jax.Array:
    sides = padding if isinstance(padding, str) else [(0, 0), *padding, (0, 0)]
    total = lax.reduce_window(x, 0.0, lax.add, (1, window, window, 1), (1, strides, strides, 1), sides)
    return total / window**2


def value_and_pulled_back(pool: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The value, and the gradient of a cotangent that is different everywhere."""
    y, pullback = jax.vjp(pool, x)
    return y, pullback(jnp.sin(y))[0]


def max_window(x: jax.Array, window: int, strides: int, padding: Any) -> jax.Array:
    return nn.max_pool(x, (window, window), (strides, strides), padding)


@pytest.mark.parametrize(("window", "strides", "padding"), CASES)
@pytest.mark.parametrize("functions", [(max_pool, max_window), (avg_pool, mean_window)])
def test_value_and_gradient_are_the_librarys(functions: Any, window: int, strides: int, padding: Any) -> None:
    x = images(2, 7, 6, 3)
    results = []
    for function in functions:
        pool = partial(function, window=window, strides=strides, padding=padding)
        results.append(jax.jit(value_and_pulled_back, static_argnums=0)(pool, x))
    chex.assert_trees_all_close(*results, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("window", "strides", "padding"), CASES)
def test_max_pool_gradient_is_a_subgradient_at_ties(window: int, strides: int, padding: Any) -> None:
    pool = jax.jit(partial(max_pool, window=window, strides=strides, padding=padding))
    pull = jax.jit(lambda x, g: jax.vjp(pool, x)[1](g)[0])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 2, (1, 5, 5, 2)).astype(np.float32)
        y = np.asarray(pool(x))
        g = rng.random(y.shape).astype(np.float32)
        share = np.asarray(pull(x, g))
        assert (share >= 0).all()
        np.testing.assert_allclose(share.sum(), g.sum(), rtol=1e-5)
        # Convexity: sum g * pool(z) >= sum g * pool(x) + <share, z - x> for every z.
        z = rng.normal(size=x.shape).astype(np.float32)
        bound = (g * y).sum() + (share * (z - x)).sum()
        assert (g * np.asarray(pool(z))).sum() >= bound - 1e-4


@pytest.mark.slow
def test_max_pool_gradient_goes_to_the_first_of_the_largest() -> None:
    for window, strides, padding, expected in [(2, 2, "VALID", 1), (3, 1, "SAME", 4)]:
        gradient = jax.grad(lambda x, a=(window, strides, padding): max_pool(x, *a).sum())(jnp.zeros((1, 2, 2, 1)))
        np.testing.assert_array_equal(gradient[0, :, :, 0], [[expected, 0], [0, 0]])


@pytest.mark.slow
def test_max_pool_in_forward_mode() -> None:
    x, tangent = images(1, 5, 5, 2), images(1, 5, 5, 2, seed=1)
    pool = partial(max_pool, window=3, strides=1, padding="SAME")
    _, forward = jax.jvp(pool, (x,), (tangent,))
    small = (pool(x + 1e-3 * tangent) - pool(x - 1e-3 * tangent)) / 2e-3
    assert jnp.median(jnp.abs(forward - small)) < 1e-3


@pytest.mark.slow
def test_second_derivatives_of_max_pool_are_the_librarys() -> None:
    # Where a loss bends after the pool; forward over reverse follows the places of the maxima in both directions.
    x, tangent = images(2, 5, 4, 2), images(2, 5, 4, 2, seed=1)

    def bent(pool: Any, x: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda x: (pool(x, 3, 1, "SAME") ** 3).sum())
        return jax.jvp(gradient, (x,), (tangent,))[1] + jax.vjp(gradient, x)[1](tangent)[0]

    got, expected = jax.jit(lambda x: [bent(pool, x) for pool in (max_pool, max_window)])(x)
    chex.assert_trees_all_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_derivative_of_max_pool_under_vmap_of_images_or_gradients_alone() -> None:
    x, g = images(3, 5, 4, 2), images(3, 5, 4, 2, seed=1)

    def pulled(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: max_pool(x[None], 3, 1, "SAME")[0], x)[1](g)[0]

    def both(x: jax.Array, g: jax.Array) -> list[list[jax.Array]]:
        mapped = [jax.vmap(pulled, axes)(*given) for axes, given in (((None, 0), (x[0], g)), ((0, None), (x, g[0])))]
        return [mapped, [jnp.stack([pulled(x[0], one) for one in g]), jnp.stack([pulled(one, g[0]) for one in x])]]

    chex.assert_trees_all_close(*jax.jit(both)(x, g), rtol=1e-6)


@pytest.mark.parametrize(("height", "width", "bins"), [(4, 4, (4, 4)), (8, 6, (4, 3)), (6, 5, (1, 5)), (8, 6, (4, 4))])
def test_adaptive_bins_with_and_without_overlap_are_means(height: int, width: int, bins: tuple[int, int]) -> None:
    x = images(2, height, width, 3)
    rows, columns = bin_means(height, bins[0]), bin_means(width, bins[1])
    pooled, pullback = jax.vjp(lambda x: adaptive_avg_pool(x, bins), x)
    np.testing.assert_allclose(pooled, np.einsum("ih,jw,bhwc->bijc", rows, columns, x), atol=1e-6)
    expected = np.einsum("ih,jw,bijc->bhwc", rows, columns, pooled)
    np.testing.assert_allclose(pullback(pooled)[0], expected, atol=1e-6)


def test_adaptive_bins_of_one_pixel_are_the_image_itself() -> None:
    x = images(2, 4, 4, 3)
    np.testing.assert_array_equal(adaptive_avg_pool(x, 4), x)


@pytest.mark.slow
def test_pooling_has_no_preferred_leading_axes() -> None:
    x = images(2, 3, 6, 6, 2)
    for pool in (partial(max_pool, window=2), partial(adaptive_avg_pool, output_size=4)):
        chex.assert_trees_all_close(pool(x), jax.vmap(pool)(x), rtol=1e-6)


@pytest.mark.slow
def test_conformance_with_torch(conformance: Path) -> None:
    cases = np.load(conformance / "torch_layers.npz")
    x, x13 = jnp.asarray(cases["x_nhwc"]), jnp.asarray(cases["x13_nhwc"])
    np.testing.assert_allclose(adaptive_avg_pool(x, 3), cases["adaptive_avg_pool_3"], atol=1e-6)
    np.testing.assert_allclose(adaptive_avg_pool(x13, 6), cases["adaptive_avg_pool_6"], atol=1e-6)
    for source in (x, x13):
        pooled = max_pool(source, 3, 2)
        if pooled.shape == cases["max_pool_3_2"].shape:
            np.testing.assert_array_equal(pooled, cases["max_pool_3_2"])
            return
    pytest.fail("no input of the conformance file pools to the expected shape")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(size=st.integers(1, 20), bins=st.integers(1, 20))
def test_bins_are_torchs(size: int, bins: int) -> None:
    matrix = bin_means(size, bins)
    for i, row in enumerate(matrix):
        start, stop = int(np.floor(i * size / bins)), int(np.ceil((i + 1) * size / bins))
        expected = np.zeros(size)
        expected[start:stop] = 1 / (stop - start)
        np.testing.assert_allclose(row, expected)


def test_bins_of_the_published_model() -> None:
    assert [list(np.flatnonzero(row)) for row in bin_means(8, 3)] == [[0, 1, 2], [2, 3, 4, 5], [5, 6, 7]]


def test_window_of_the_wrong_length() -> None:
    with pytest.raises(ValueError, match="expected one number"):
        max_pool(images(1, 4, 4, 1), (2, 2, 2))


def test_a_mean_of_short_numbers_is_summed_in_float32() -> None:
    """In bfloat16 257 ones sum to 256, and further ones add nothing."""
    x = jnp.ones((1, 32, 32, 1), jnp.bfloat16)
    y = avg_pool(x, 32)
    assert y.dtype == x.dtype
    assert float(y.squeeze()) == 1


@pytest.mark.parametrize("pool", [max_pool, avg_pool])
@pytest.mark.parametrize("strides", [1, 3, 4])
def test_a_window_that_does_not_fit_is_refused_in_one_line(pool: Any, strides: int) -> None:
    with pytest.raises(UserError, match=r"got an image of 2 x 5 pixels for windows of 3 x 3.*enlarge") as error:
        pool(images(1, 2, 5, 1), 3, strides)
    assert "\n" not in str(error.value)
    assert pool(images(1, 2, 5, 1), 3, strides, 1).shape[1] == (2 if strides == 1 else 1)
