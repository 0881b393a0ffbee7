"""Convolutions with fewer multiplications: Winograd's minimal filtering, written as small matrix products.

Along one axis, `m` outputs of a filter with `r` elements need `n = m + r - 1` multiplications instead of `m * r`:

    y = A ((G k) * (D x))          A [m, n], G [n, r], D [n, n] constant, * elementwise

(Winograd, 1980; Lavin and Gray, 2016, "Fast algorithms for convolutional neural networks", section 4.) On images
the same is done along both axes, for tiles of `m x m` outputs, and the elementwise product over channels is one
matrix product per point: `n * n` products `[batch * tiles, in] @ [in, out]`. The three maps of a convolution are
one bilinear algorithm and its two transposes, so that they share what they transform:

    y  = A  ((D x)  (G k))         forward
    x' = D' ((A' y') (G k)')       input gradient
    k' = G' ((D x)' (A' y'))       kernel gradient

The tiles of an axis, its padding and the rows that fill no tile are folded into `D` and `A`, which makes the
transforms matrix products as well; large images are cut into blocks of a few tiles first, so that these matrices stay
small. With 4 outputs a tile, the error is about ten times that of the direct sum (1e-5 of the largest output in
float32).
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fdgjax.nn.geometry import Case, Geometry, at_least_float32
from fdgjax.nn.windows import Pair, left_product, tall_product

TILE = 4
"""Outputs per tile and axis."""

POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Where polynomials are evaluated, besides infinity: small numbers, exact in binary, lose the fewest digits."""

WIDEST = len(POINTS) + 2 - TILE
"""The widest window there are points for."""


LONGEST = 20
"""Outputs along an axis up to which all its tiles are one block."""

BLOCK = 3
"""Tiles in a block of a longer axis."""


class Axis(NamedTuple):
    """One axis of images, of `size` pixels, and its constants.

    spread: D, `[points * tiles, rows]`, from the pixels of a block to the points of its tiles.
    gather: A, `[outputs, points * tiles]`, from points to the outputs of a block.
    kernel: G, `[points, window]`.
    tiles: in a block. blocks: how many, each beginning `tiles * TILE` pixels after the one before.
    size, out: pixels and outputs. before: zeros before the first pixel that are not folded into D.
    """

    spread: np.ndarray
    gather: np.ndarray
    kernel: np.ndarray
    tiles: int
    blocks: int
    size: int
    out: int
    before: int

    @property
    def points(self) -> int:
        """n, multiplications per tile."""
        return len(self.kernel)

    @property
    def step(self) -> int:
        """Outputs of a block."""
        return self.tiles * TILE

    def to_points(self, x: jax.Array) -> jax.Array:
        """`D x`: `[b, size, c]` -> `[b * blocks, points * tiles, c]`."""
        if self.blocks > 1:
            after = (self.blocks + 1) * self.step - self.size - self.before
            x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (self.before, after, 0), (0, 0, 0)])
            inside, beyond = x[:, : -self.step], x[:, self.step :]
            blocks = (part.reshape(-1, self.step, x.shape[2]) for part in (inside, beyond))
            x = jnp.concatenate([next(blocks), next(blocks)[:, : self.spread.shape[1] - self.step]], axis=1)
        return left_product(self.spread, x)

    def to_points_transposed(self, x: jax.Array) -> jax.Array:
        """`D' x`: `[b * blocks, points * tiles, c]` -> `[b, size, c]`; what blocks share is added up."""
        x = left_product(self.spread.T, x)
        if self.blocks == 1:
            return x
        channels = x.shape[2]
        inside = x[:, : self.step].reshape(-1, self.blocks * self.step, channels)
        beyond = jnp.pad(x[:, self.step :], ((0, 0), (0, 2 * self.step - x.shape[1]), (0, 0)))
        beyond = beyond.reshape(-1, self.blocks * self.step, channels)
        both = jnp.pad(inside, ((0, 0), (0, self.step), (0, 0))) + jnp.pad(beyond, ((0, 0), (self.step, 0), (0, 0)))
        return both[:, self.before : self.before + self.size]

    def to_outputs(self, x: jax.Array) -> jax.Array:
        """`A x`: `[b * blocks, points * tiles, c]` -> `[b, out, c]`."""
        y = left_product(self.gather, x)
        return y if self.blocks == 1 else y.reshape(-1, self.blocks * self.step, x.shape[2])[:, : self.out]

    def to_outputs_transposed(self, g: jax.Array) -> jax.Array:
        """`A' g`: `[b, out, c]` -> `[b * blocks, points * tiles, c]`."""
        if self.blocks > 1:
            missing = self.blocks * self.step - self.out
            g = jnp.pad(g, ((0, 0), (0, missing), (0, 0))).reshape(-1, self.step, g.shape[2])
        return left_product(self.gather.T, g)


def one_tile(window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """D, A and G of a single tile."""
    points = TILE + window - 1
    roots = np.array(POINTS[: points - 1])
    # The last point is infinity: a polynomial's value there is its leading coefficient.
    values = np.vstack([np.vander(roots, max(TILE, window), increasing=True), np.zeros(max(TILE, window))])
    gather, kernel = values[:, :TILE].T.copy(), values[:, :window].copy()
    gather[-1, -1] = kernel[-1, -1] = 1
    spread = np.zeros((points, points))
    for i, root in enumerate(roots):
        others = np.delete(roots, i)
        spread[i, :-1] = np.poly(others)[::-1]
        kernel[i] /= np.prod(root - others)
    spread[-1] = np.poly(roots)[::-1]
    return spread, gather, kernel


@lru_cache
def make_axis(size: int, window: int, pads: Pair) -> Axis:
    """The axis of `size` pixels under a filter of `window` elements, with `pads` zeros before and after."""
    out = size + sum(pads) - window + 1
    whole = out <= LONGEST
    tiles = -(-out // TILE) if whole else BLOCK
    blocks = 1 if whole else -(-out // (BLOCK * TILE))
    spread, gather, kernel = one_tile(window)
    points, rows = len(kernel), tiles * TILE + window - 1
    pixels, outputs = np.zeros((points, tiles, rows)), np.zeros((tiles * TILE, points, tiles))
    for t in range(tiles):
        pixels[:, t, t * TILE : t * TILE + points] = spread
        outputs[t * TILE : (t + 1) * TILE, :, t] = gather
    if whole:
        beyond = max(0, pads[0] + size - rows)
        pixels = np.pad(pixels, ((0, 0), (0, 0), (0, beyond)))[:, :, pads[0] : pads[0] + size]
        outputs = outputs[:out]
    flat = (pixels.reshape(points * tiles, -1), outputs.reshape(-1, points * tiles))
    return Axis(*flat, kernel, tiles, blocks, size, out, 0 if whole else pads[0])


class Transform(NamedTuple):
    """Both axes of an image."""

    rows: Axis
    columns: Axis

    def pixels(self, x: jax.Array) -> jax.Array:
        """`D x`: `[batch, H, W, in]` -> `[points, batch * tiles, in]`."""
        batch, _, width, channels = x.shape
        x = self.rows.to_points(x.reshape(batch, self.rows.size, -1)).reshape(-1, width, channels)
        return self._by_point(self.columns.to_points(x))

    def pixels_transposed(self, products: jax.Array) -> jax.Array:
        """`D' p`: `[points, batch * tiles, in]` -> `[batch, H, W, in]`."""
        channels, (rows, columns) = products.shape[2], self
        x = columns.to_points_transposed(self._by_image(products))
        x = x.reshape(-1, rows.points * rows.tiles, columns.size * channels)
        return rows.to_points_transposed(x).reshape(-1, rows.size, columns.size, channels)

    def outputs(self, products: jax.Array) -> jax.Array:
        """`A p`: `[points, batch * tiles, out]` -> `[batch, H', W', out]`."""
        channels, (rows, columns) = products.shape[2], self
        y = columns.to_outputs(self._by_image(products))
        y = y.reshape(-1, rows.points * rows.tiles, columns.out * channels)
        return rows.to_outputs(y).reshape(-1, rows.out, columns.out, channels)

    def outputs_transposed(self, g: jax.Array) -> jax.Array:
        """`A' g`: `[batch, H', W', out]` -> `[points, batch * tiles, out]`."""
        batch, _, width, channels = g.shape
        g = self.rows.to_outputs_transposed(g.reshape(batch, self.rows.out, -1)).reshape(-1, width, channels)
        return self._by_point(self.columns.to_outputs_transposed(g))

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

    def _split(self) -> tuple[int, ...]:
        """Blocks, points and tiles of rows and of columns, as they lie in memory."""
        return tuple(n for axis in self for n in (axis.blocks, axis.points, axis.tiles))

    def _by_point(self, x: jax.Array) -> jax.Array:
        # The columns' blocks were cut row by row.
        (bh, ph, th, bw, pw, tw), channels = self._split(), x.shape[2]
        split = x.reshape(-1, bh, ph, th, bw, pw, tw, channels)
        return split.transpose(2, 5, 0, 1, 3, 4, 6, 7).reshape(ph * pw, -1, channels)

    def _by_image(self, x: jax.Array) -> jax.Array:
        (bh, ph, th, bw, pw, tw), channels = self._split(), x.shape[2]
        split = x.reshape(ph, pw, -1, bh, th, bw, tw, channels)
        return split.transpose(2, 3, 0, 4, 5, 1, 6, 7).reshape(-1, pw * tw, channels)


def fits(geometry: Geometry) -> bool:
    """Whether the algorithm can compute it: no stride, no groups, a window of at most 5."""
    plain = geometry.strides == geometry.dilation == (1, 1) and geometry.groups == 1
    inside = min(min(pads) for pads in geometry.pads) >= 0 and min(geometry.out()) > 0
    return plain and inside and max(geometry.window) <= WIDEST


def pays(case: Case) -> bool:
    """Whether it is faster than the direct sum on a CPU: pixels enough to fill tiles, channels enough to outweigh the
    transforms of pixels, and more pixels than it costs to transform the kernel."""
    return min(case.geometry.out()) > TILE // 2 and min(case.inputs, case.outputs) >= 16 and case.pixels >= 512


def transform(geometry: Geometry) -> Transform:
    """The constants of a convolution."""
    rows, columns = (make_axis(*both) for both in zip(geometry.size, geometry.window, geometry.pads, strict=True))
    return Transform(rows, columns)


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution."""
    change, dtype = transform(geometry), at_least_float32(x.dtype)
    products = jnp.matmul(change.pixels(x.astype(dtype)), change.kernel(kernel.astype(dtype)))
    return change.outputs(products).astype(x.dtype)


def input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """Its transpose by the image."""
    change, dtype = transform(geometry), at_least_float32(g.dtype)
    outputs, weights = change.outputs_transposed(g.astype(dtype)), change.kernel(kernel.astype(dtype))
    products = lax.dot_general(outputs, weights, (((2,), (2,)), ((0,), (0,))))
    return change.pixels_transposed(products).astype(g.dtype)


def kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """Its transpose by the kernel."""
    change, dtype = transform(geometry), at_least_float32(x.dtype)
    pixels, outputs = change.pixels(x.astype(dtype)), change.outputs_transposed(g.astype(dtype))
    if pixels.shape[2] <= outputs.shape[2]:
        return change.kernel_transposed(tall_product(pixels, outputs)).astype(x.dtype)
    return change.kernel_transposed(tall_product(outputs, pixels)).swapaxes(2, 3).astype(x.dtype)
