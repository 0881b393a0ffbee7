"""The constants of Winograd's algorithm, in float64 against the filter written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.nn.winograd import POINTS, TILE, WIDEST, make_axis


@pytest.mark.parametrize("window", range(1, WIDEST + 1))
@pytest.mark.parametrize("pads", [(0, 0), (1, 2)])
@pytest.mark.parametrize("size", [5, 8, 13, 27, 40])
def test_an_axis_is_the_filter(size: int, window: int, pads: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=size), rng.normal(size=window)
    axis = make_axis(size, window, pads)
    with jax.enable_x64(True):
        products = np.repeat(axis.kernel @ k, axis.tiles)[None, :, None] * axis.to_points(jnp.asarray(x)[None, :, None])
        y = axis.to_outputs(products)[0, :, 0]
    np.testing.assert_allclose(y, np.correlate(np.pad(x, pads), k), atol=1e-12)


@pytest.mark.parametrize(
    ("there", "back"), [("to_points", "to_points_transposed"), ("to_outputs_transposed", "to_outputs")]
)
@pytest.mark.parametrize("size", [9, 30])
def test_transposes(there: str, back: str, size: int) -> None:
    axis = make_axis(size, 3, (1, 0))
    length = {"to_points": size, "to_outputs_transposed": axis.out}[there]
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, length, 3)), jnp.float32)
    ahead, pullback = jax.vjp(getattr(axis, there), x)
    y = jnp.asarray(rng.normal(size=ahead.shape), jnp.float32)
    np.testing.assert_allclose(getattr(axis, back)(y), pullback(y)[0], atol=1e-4)


def test_points_are_different_and_enough() -> None:
    assert len(set(POINTS)) == len(POINTS) == TILE + WIDEST - 2
