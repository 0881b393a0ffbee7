"""Pooling of NHWC images, written with slices, reshapes and sums instead of `reduce_window`.

XLA:CPU runs `reduce_window` and above all its gradient (`select_and_scatter`) about ten times slower than
these. Every function takes any leading axes: `x [..., H, W, channels]`.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fdgjax.nn.geometry import at_least_float32
from fdgjax.nn.window_selection import MOST, Windows, first_largest_place, take_pixels
from fdgjax.nn.windows import Padding, Pads, Pair, Size, left_product, pads_of, pair
from fdgjax.utils.errors import UserError

Combine = Callable[..., jax.Array]


@jax.custom_jvp
def first_largest(*parts: jax.Array) -> jax.Array:
    """The elementwise maximum of arrays of one shape; its whole derivative goes to the first array that
    attains it."""
    return reduce(jnp.maximum, parts)


@first_largest.defjvp
def _first_largest_jvp(parts: Sequence[jax.Array], tangents: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    largest, tangent = first_largest(*parts), tangents[-1]
    for part, candidate in zip(parts[-2::-1], tangents[-2::-1], strict=True):
        tangent = jnp.where(part == largest, candidate, tangent)
    return largest, tangent


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _max_pool_of_stride_one(x: jax.Array, windows: Windows) -> jax.Array:
    """`max_pool` whose derivative uses the place of each maximum instead of comparing all pixels again."""
    padding, strides = windows.pads, (1, 1)
    return _pool(x, windows.window, strides, padding, first_largest, jnp.asarray(-jnp.inf, x.dtype))


@_max_pool_of_stride_one.defjvp
def _max_pool_of_stride_one_jvp(windows: Windows, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    largest, place = first_largest_place(x, windows)
    return largest, take_pixels(tangent, place, windows)


def max_pool(x: jax.Array, window: Size, strides: Size | None = None, padding: Padding = "VALID") -> jax.Array:
    """The maximum over each window.

    Gradient: where several pixels of a window attain the maximum, the first of them in reading order gets the output
    gradient, as in PyTorch. That is a sub-gradient.

    Args:
      x: `[..., H, W, channels]`.
      window: height and width, or one number for both.
      strides: likewise; None means the window's size, as in PyTorch.
      padding: `"VALID"`, `"SAME"`, a number, or per axis a number or `(before, after)`; padding never wins.

    Returns:
      `[..., H', W', channels]`.

    Raises:
      UserError: an image that is smaller than the window, padding included.
    """
    size, windows, steps = pair(x.shape[-3:-1]), pair(window), pair(window if strides is None else strides)
    if steps == (1, 1) != windows and windows[0] * windows[1] <= MOST:
        return _max_pool_of_stride_one(x, Windows(size, windows, _pads(padding, size, windows, steps)))
    return _pool(x, windows, steps, padding, first_largest, jnp.asarray(-jnp.inf, x.dtype))


def avg_pool(x: jax.Array, window: Size, strides: Size | None = None, padding: Padding = "VALID") -> jax.Array:
    """The mean over each window, summed in at least float32; padding counts as zeros (PyTorch's and Flax's default).
    Arguments and errors as in `max_pool`."""
    windows, steps = pair(window), pair(window if strides is None else strides)
    wide = x.astype(at_least_float32(x.dtype))
    total = _pool(wide, windows, steps, padding, lambda *parts: reduce(jnp.add, parts), jnp.zeros((), wide.dtype))
    return (total / np.asarray(np.prod(windows), total.dtype)).astype(jnp.result_type(x.dtype, 1.0))


def adaptive_avg_pool(x: jax.Array, output_size: Size) -> jax.Array:
    """Means over a fixed number of bins whatever the image's size, with PyTorch's bins, which overlap.

    Bin `i` of `n` over `size` pixels is `[floor(i * size / n), ceil((i + 1) * size / n))`: for 8 -> 3 the
    rows [0, 3), [2, 6) and [5, 8). Along each axis that is a constant `[n, size]` matrix; the identity where `n` is
    `size`, and means of neighbours where `n` divides it.

    Args:
      x: `[..., H, W, channels]`.
      output_size: bins per axis, or one number for both.

    Returns:
      `[..., bins_h, bins_w, channels]`.

    Raises:
      UserError: an image without pixels, as when a network shrinks a small image too often.
    """
    *leading, height, width, channels = x.shape
    if not (height and width):
        raise UserError(
            f"pooling got an image of {height} x {width} pixels; expected at least 1 x 1: enlarge the images"
        )
    bins_h, bins_w = pair(output_size)
    x = _means(x.reshape(-1, height, width * channels), bins_h)
    x = _means(x.reshape(-1, width, channels), bins_w)
    return x.reshape(*leading, bins_h, bins_w, channels)


def _means(x: jax.Array, bins: int) -> jax.Array:
    """`[b, size, c]` -> `[b, bins, c]`: a product with `bin_means`, or where bins do not overlap plain means."""
    batch, size, channels = x.shape
    if size == bins:
        return x
    if size % bins == 0:
        return x.reshape(batch, bins, size // bins, channels).mean(2)
    return left_product(bin_means(size, bins), x)


def bin_means(size: int, bins: int) -> np.ndarray:
    """The `[bins, size]` matrix that takes a vector's means over PyTorch's adaptive bins."""
    index, pixel = np.arange(bins)[:, None], np.arange(size)[None]
    inside = (pixel >= index * size // bins) & (pixel < -((index + 1) * -size // bins))
    return inside / inside.sum(axis=1, keepdims=True)


def _pool(
    x: jax.Array, windows: Pair, steps: Pair, padding: Padding, combine: Combine, neutral: jax.Array
) -> jax.Array:
    """`combine` of the pixels of each window, in reading order."""
    pads = _pads(padding, pair(x.shape[-3:-1]), windows, steps)
    if any(map(any, pads)):
        x = lax.pad(x, neutral, [*[(0, 0, 0)] * (x.ndim - 3), *((*pad, 0) for pad in pads), (0, 0, 0)])
    if windows == steps:
        return combine(*_tiles(x, windows))
    for axis in (1, 0):
        x = combine(*_shifts(x, x.ndim - 3 + axis, windows[axis], steps[axis]))
    return x


def _pads(padding: Padding, size: Pair, windows: Pair, steps: Pair) -> Pads:
    """`pads_of`, where a window fits into the padded image."""
    pads = pads_of(padding, size, windows, steps)
    if any(pixels + sum(more) < needed for pixels, more, needed in zip(size, pads, windows, strict=True)):
        raise UserError(
            f"pooling got an image of {size[0]} x {size[1]} pixels for windows of {windows[0]} x {windows[1]}; "
            "expected at least as many pixels: enlarge the images"
        )
    return pads


def _tiles(x: jax.Array, window: Pair) -> list[jax.Array]:
    """The first, second, ... pixel of every tile; rows and columns that fill no tile are left out."""
    *leading, height, width, channels = x.shape
    h, w = window
    whole = x[..., : height // h * h, : width // w * w, :]
    tiles = whole.reshape(*leading, height // h, h, width // w, w, channels)
    return [tiles[..., i, :, j, :] for i in range(h) for j in range(w)]


def _shifts(x: jax.Array, axis: int, size: int, step: int) -> list[jax.Array]:
    """The first, second, ... pixel of every window along one axis.

    Pixels are split into rows of `step`, so that none is skipped: XLA:CPU is slow at the gradient of a slice with gaps.
    """
    count = (x.shape[axis] - size) // step + 1
    rows = count + (size - 1) // step
    # No window reaches what is padded here, nor what is cropped.
    edges = [(0, rows * step - x.shape[axis] if i == axis else 0, 0) for i in range(x.ndim)]
    whole = lax.pad(x, jnp.zeros((), x.dtype), edges)
    split = whole.reshape(*x.shape[:axis], rows, step, *x.shape[axis + 1 :])
    columns = [lax.index_in_dim(split, i, axis + 1, keepdims=False) for i in range(min(step, size))]
    return [lax.slice_in_dim(columns[i % step], i // step, i // step + count, 1, axis) for i in range(size)]
