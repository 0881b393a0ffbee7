"""The constants of Winograd's algorithm, in float64 against the filter written out."""

import numpy as np
import pytest

from fdgjax.nn.winograd import POINTS, SMALL_TILE, TILE, WIDEST, axis


@pytest.mark.parametrize("window", range(1, WIDEST + 1))
@pytest.mark.parametrize("pads", [(0, 0), (1, 2)])
@pytest.mark.parametrize("size", [5, 8, 13])
@pytest.mark.parametrize("tile", [TILE, SMALL_TILE])
def test_an_axis_is_the_filter(tile: int, size: int, window: int, pads: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=size), rng.normal(size=window)
    constants = axis(size, window, pads, tile)
    assert constants.points == tile + window - 1
    products = (constants.kernel @ k).repeat(constants.tiles) * (constants.spread @ x)
    np.testing.assert_allclose(constants.gather @ products, np.correlate(np.pad(x, pads), k), atol=1e-12)


def test_points_are_different_and_enough() -> None:
    assert len(set(POINTS)) == len(POINTS) == TILE + WIDEST - 2
