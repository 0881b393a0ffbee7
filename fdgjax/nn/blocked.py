"""Strided convolutions of images with few channels: the pixels between two strides become channels.

With strides `s x s`, blocks of `s x s` pixels with `c` channels are pixels with `s * s * c` channels, and the
convolution is one without stride, by a kernel of `q = ceil(k / s)` blocks along each axis. Each row of blocks is
multiplied by all rows of that kernel at once, a matrix product as wide as `q` times the output channels, and the
products are added up, each at its row of outputs:

    y[i, j] = sum_u p[i + u, j, u]          p[r, j, u] = sum_v blocks[r, j + v] k[u, v]

Images are processed one by one, so that the intermediate arrays of an image stay in the cache.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import Case, Geometry, at_least_float32
from fdgjax.nn.windows import Pair

FULL_WIDTH = 48
"""Number of output channels from which XLA's own convolution is faster on a CPU."""


def fits(geometry: Geometry) -> bool:
    """Whether the input can be cut into blocks: no groups, no dilation."""
    return geometry.groups == 1 and geometry.dilation == (1, 1) and min(geometry.out()) > 0


def blocked_pays(case: Case) -> bool:
    """Whether it is faster than XLA's own convolution on a CPU: few outputs, and strides along both axes."""
    return case.outputs < FULL_WIDTH and min(case.geometry.strides) > 1


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution."""
    rows, out = _kernel_blocks(geometry)[0], kernel.shape[3]
    matrix, height = _by_row(kernel, geometry), geometry.out()[0]

    def one_image(image: jax.Array) -> jax.Array:
        products = jnp.matmul(_columns(image, geometry), matrix, preferred_element_type=at_least_float32(x.dtype))
        terms = [products[u : u + height, :, u * out : (u + 1) * out] for u in range(rows)]
        return reduce(jnp.add, terms).astype(x.dtype)

    return lax.map(one_image, x)


def _kernel_blocks(geometry: Geometry) -> Pair:
    """Blocks under the kernel along each axis."""
    (kh, kw), (sh, sw) = geometry.window, geometry.strides
    return -(-kh // sh), -(-kw // sw)


def _columns(image: jax.Array, geometry: Geometry) -> jax.Array:
    """The blocks of `[H, W, c]` under one row of the kernel: `[H' + rows - 1, W', columns * s * s * c]`."""
    (sh, sw), (height, width), (rows, columns) = geometry.strides, geometry.out(), _kernel_blocks(geometry)
    tall, across, channels = height + rows - 1, width + columns - 1, image.shape[2]
    ends = zip((tall * sh, across * sw), geometry.size, geometry.pads, strict=True)
    edges = [(before, total - size - before, 0) for total, size, (before, _) in ends]
    padded = lax.pad(image, jnp.zeros((), image.dtype), [*edges, (0, 0, 0)])
    blocks = padded.reshape(tall, sh, across, sw * channels).swapaxes(1, 2).reshape(tall, across, -1)
    return jnp.concatenate([blocks[:, v : v + width] for v in range(columns)], axis=-1)


def _by_row(kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """`[kh, kw, c, out]` -> `[columns * s * s * c, rows * out]`, filled up with zeros to whole blocks."""
    (kh, kw, channels, out), (sh, sw), (rows, columns) = kernel.shape, geometry.strides, _kernel_blocks(geometry)
    filled = jnp.pad(kernel, ((0, rows * sh - kh), (0, columns * sw - kw), (0, 0), (0, 0)))
    split = filled.reshape(rows, sh, columns, sw * channels, out)
    return split.transpose(2, 1, 3, 0, 4).reshape(-1, rows * out)
