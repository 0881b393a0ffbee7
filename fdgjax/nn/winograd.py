"""Convolutions with fewer multiplications: Winograd's minimal filtering, written as small matrix products.

Along one axis, `m` outputs of a filter with `r` elements need `n = m + r - 1` multiplications instead of `m * r`:

    y = A ((G k) * (D x))          A [m, n], G [n, r], D [n, n] constant, * elementwise

(Winograd, 1980; Lavin and Gray, 2016, "Fast algorithms for convolutional neural networks", section 4.) On images
the same is done along both axes, for tiles of `m x m` outputs, and the elementwise product over channels is one
matrix product per point: `n * n` products `[batch * tiles, in] @ [in, out]`. The three maps of a convolution are
one bilinear algorithm and its two transposes, so that they share their transforms:

    y  = A  ((D x)  (G k))         forward
    x' = D' ((A' y') (G k)')       input gradient
    k' = G' ((D x)' (A' y'))       kernel gradient

All tiles of an axis, its padding and the rows that fill no tile are folded into `D` and `A`, which makes the
transforms matrix products as well. With 4 outputs a tile, the error is about ten times that of the direct sum (1e-5
of the largest output in float32); with 2 it is that of the direct sum.
"""

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fdgjax.nn.geometry import Case, Geometry, at_least_float32
from fdgjax.nn.windows import Pair, left_product, tall_product

TILE = 4
"""Outputs per tile and axis."""

SMALL_TILE = 2
"""The same where the kernel is large compared with the pixels: its transform is smaller, at more multiplications."""

POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Where polynomials are evaluated, besides infinity: small numbers that are exact in binary lose the fewest digits."""

WIDEST = len(POINTS) + 2 - TILE
"""The widest window there are points for."""


class Axis(NamedTuple):
    """The constants of one axis.

    spread: D, `[points * tiles, size]`, from pixels to the points of all tiles.
    gather: A, `[out, points * tiles]`, from points to outputs.
    kernel: G, `[points, window]`.
    tiles: number of tiles.
    """

    spread: np.ndarray
    gather: np.ndarray
    kernel: np.ndarray
    tiles: int

    @property
    def points(self) -> int:
        """n, multiplications per tile."""
        return len(self.kernel)

    def only(self, points: slice) -> "Axis":
        """The same, restricted to some of the points: their part of the sum."""
        spread = self.spread.reshape(self.points, self.tiles, -1)[points]
        gather = self.gather.reshape(-1, self.points, self.tiles)[:, points]
        count = spread.shape[0] * self.tiles
        return Axis(spread.reshape(count, -1), gather.reshape(-1, count), self.kernel[points], self.tiles)


@lru_cache
def axis(size: int, window: int, pads: Pair, tile: int = TILE) -> Axis:
    """The constants for `size` pixels, a filter of `window` elements and `pads` zeros before and after."""
    points = tile + window - 1
    roots = np.array(POINTS[: points - 1])
    # The last point is infinity: a polynomial's value there is its leading coefficient.
    values = np.vstack([np.vander(roots, max(tile, window), increasing=True), np.zeros(max(tile, window))])
    gather, kernel = values[:, :tile].copy(), values[:, :window].copy()
    gather[-1, -1] = kernel[-1, -1] = 1
    spread = np.zeros((points, points))
    for i, root in enumerate(roots):
        others = np.delete(roots, i)
        spread[i, :-1] = np.atleast_1d(np.poly(others))[::-1]
        kernel[i] /= np.prod(root - others)
    spread[-1] = np.poly(roots)[::-1]
    return over_tiles(spread, gather.T, kernel, size, pads)


def over_tiles(spread: np.ndarray, gather: np.ndarray, kernel: np.ndarray, size: int, pads: Pair) -> Axis:
    """The constants of one tile laid out over all tiles of an axis, points slower than tiles."""
    tile, points = gather.shape
    out = size + sum(pads) - kernel.shape[1] + 1
    tiles = -(-out // tile)
    padded = np.zeros((points, tiles, tiles * tile + points + sum(pads) + size))
    outputs = np.zeros((tiles * tile, points, tiles))
    for t in range(tiles):
        padded[:, t, t * tile : t * tile + points] = spread
        outputs[t * tile : (t + 1) * tile, :, t] = gather
    pixels = padded[:, :, pads[0] : pads[0] + size]
    return Axis(pixels.reshape(points * tiles, size), outputs[:out].reshape(out, points * tiles), kernel, tiles)


class Transform(NamedTuple):
    """The constants of both axes of an image."""

    rows: Axis
    columns: Axis

    def pixels(self, x: jax.Array) -> jax.Array:
        """`D x`: `[batch, H, W, in]` -> `[points, batch * tiles, in]`."""
        return self._by_point(sandwich(self.rows.spread, x, self.columns.spread))

    def pixels_transposed(self, products: jax.Array, batch: int) -> jax.Array:
        """`D' p`: `[points, batch * tiles, in]` -> `[batch, H, W, in]`."""
        return sandwich(self.rows.spread.T, self._by_image(products, batch), self.columns.spread.T)

    def outputs(self, products: jax.Array, batch: int) -> jax.Array:
        """`A p`: `[points, batch * tiles, out]` -> `[batch, H', W', out]`."""
        return sandwich(self.rows.gather, self._by_image(products, batch), self.columns.gather)

    def outputs_transposed(self, g: jax.Array) -> jax.Array:
        """`A' g`: `[batch, H', W', out]` -> `[points, batch * tiles, out]`."""
        return self._by_point(sandwich(self.rows.gather.T, g, self.columns.gather.T))

    def kernel(self, kernel: jax.Array) -> jax.Array:
        """`G k`: `[kh, kw, in, out]` -> `[points, in, out]`."""
        kh, kw, inputs, out = kernel.shape
        return (self._both_kernels(kernel.dtype) @ kernel.reshape(kh * kw, -1)).reshape(-1, inputs, out)

    def kernel_transposed(self, products: jax.Array) -> jax.Array:
        """`G' p`: `[points, in, out]` -> `[kh, kw, in, out]`."""
        points, inputs, out = products.shape
        flat = self._both_kernels(products.dtype).T @ products.reshape(points, -1)
        return flat.reshape(self.rows.kernel.shape[1], self.columns.kernel.shape[1], inputs, out)

    def _both_kernels(self, dtype: jnp.dtype) -> jax.Array:
        return jnp.asarray(np.kron(self.rows.kernel, self.columns.kernel), dtype)

    def _by_point(self, x: jax.Array) -> jax.Array:
        (ph, th), (pw, tw) = ((a.points, a.tiles) for a in self)
        split = x.reshape(-1, ph, th, pw, tw, x.shape[-1])
        return split.transpose(1, 3, 0, 2, 4, 5).reshape(ph * pw, -1, x.shape[-1])

    def _by_image(self, x: jax.Array, batch: int) -> jax.Array:
        (ph, th), (pw, tw) = ((a.points, a.tiles) for a in self)
        split = x.reshape(ph, pw, batch, th, tw, x.shape[-1])
        return split.transpose(2, 0, 3, 1, 4, 5).reshape(batch, ph * th, pw * tw, x.shape[-1])


def sandwich(left: np.ndarray, x: jax.Array, right: np.ndarray) -> jax.Array:
    """`left x right'` on the two image axes: `[batch, H, W, c]` -> `[batch, len(left), len(right), c]`."""
    batch, height, width, channels = x.shape

    def along_rows(x: jax.Array) -> jax.Array:
        return left_product(right, x.reshape(-1, width, channels)).reshape(batch, -1, len(right), channels)

    def along_columns(x: jax.Array) -> jax.Array:
        return left_product(left, x.reshape(batch, height, -1)).reshape(batch, len(left), -1, channels)

    # Along rows first if that shrinks the image, last if it enlarges it: most products are along rows.
    return along_columns(along_rows(x)) if len(right) < width else along_rows(along_columns(x))


def fits(geometry: Geometry) -> bool:
    """Whether the algorithm can compute the convolution: no stride, no groups, a window of at most 5."""
    inside = min(min(pads) for pads in geometry.pads) >= 0 and min(geometry.out()) > 0
    return geometry.plain and inside and max(geometry.window) <= WIDEST


FEWEST_PIXELS = 256
"""Number of output pixels in a batch that outweigh the transforms of the kernel."""

LARGE_KERNEL = 2**17
"""Pairs of channels beyond which the kernel's transform with `TILE` does not fit the cache, and twice the pixels are
needed."""

CHANNELS_PER_PIXEL = 12
"""The least ratio of the multiplications saved, times the channels, to the pixels along an axis."""


def winograd_pays(case: Case, tile: int = TILE) -> bool:
    """Whether it is faster than the direct sum on a CPU: enough pixels to fill tiles and to outweigh the transforms of
    the kernel, and few along an axis compared with the channels, since all tiles of an axis share one matrix; more with
    larger kernels, which save more multiplications."""
    sizes, channels, (kh, kw) = case.geometry.out(), min(case.inputs, case.outputs), case.geometry.window
    saved = tile * kh / (tile + kh - 1) * (tile * kw / (tile + kw - 1))
    few = CHANNELS_PER_PIXEL * max(sizes) <= saved * channels
    large = tile == TILE and case.inputs * case.outputs > LARGE_KERNEL
    return min(sizes) > tile // 2 and few and case.pixels >= FEWEST_PIXELS * (2 if large else 1)


PARTS = 2
"""The points are split into so many parts: XLA:CPU runs a batched product on one core, but independent operations in
parallel."""


def parts(geometry: Geometry, tile: int = TILE) -> list[Transform]:
    """The constants of a convolution: transforms whose results add up to it."""
    rows, columns = (axis(*both, tile) for both in zip(geometry.size, geometry.window, geometry.pads, strict=True))
    each = -(-rows.points // PARTS)
    return [Transform(rows.only(slice(i, i + each)), columns) for i in range(0, rows.points, each)]


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry, tile: int = TILE) -> jax.Array:
    """The convolution."""

    def part(change: Transform) -> jax.Array:
        products = jnp.matmul(change.pixels(wide_x), change.kernel(wide_kernel))
        return change.outputs(products, len(x))

    wide_x, wide_kernel = _wide(x, kernel)
    return _total(part, geometry, tile).astype(x.dtype)


def input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry, tile: int = TILE) -> jax.Array:
    """The gradient with respect to the image."""

    def part(change: Transform) -> jax.Array:
        both = (((2,), (2,)), ((0,), (0,)))
        products = lax.dot_general(change.outputs_transposed(wide_g), change.kernel(wide_kernel), both)
        return change.pixels_transposed(products, len(g))

    wide_g, wide_kernel = _wide(g, kernel)
    return _total(part, geometry, tile).astype(g.dtype)


def kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry, tile: int = TILE) -> jax.Array:
    """The gradient with respect to the kernel."""
    swap = x.shape[3] > g.shape[3]

    def part(change: Transform) -> jax.Array:
        pixels, outputs = change.pixels(wide_x), change.outputs_transposed(wide_g)
        return change.kernel_transposed(tall_product(outputs, pixels) if swap else tall_product(pixels, outputs))

    wide_x, wide_g = _wide(x, g)
    total = _total(part, geometry, tile).astype(x.dtype)
    return total.swapaxes(2, 3) if swap else total


def _wide(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays in at least float32: the transforms lose too much precision in less."""
    return tuple(array.astype(at_least_float32(array.dtype)) for array in arrays)


def _total(part: Callable[[Transform], jax.Array], geometry: Geometry, tile: int) -> jax.Array:
    return reduce(jnp.add, map(part, parts(geometry, tile)))
