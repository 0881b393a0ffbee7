"""Convolutions with a stride, as convolutions without one: blocks of pixels become channels.

With a stride of `s`, blocks of `s x s` pixels taken as one pixel of `s * s` times the channels turn a kernel of `k x k`
into one of `ceil(k / s)` blocks, filled up with zeros, and the stride is gone. For 11x11 with a stride of 4, as on
AlexNet's images, that is 3x3 blocks of 48 channels and a fifth more multiplications, of which Winograd's algorithm then
saves three quarters.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn import winograd
from fdgjax.nn.geometry import Geometry
from fdgjax.nn.windows import Pair


def fits(geometry: Geometry) -> bool:
    """Whether there is a stride, and Winograd's algorithm can compute what is left without it."""
    plain = geometry.groups == 1 and geometry.dilation == (1, 1) and max(geometry.strides) > 1
    return plain and min(geometry.out()) > 0 and winograd.fits(without_stride(geometry))


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution."""
    return winograd.forward(_to_depth(x, geometry), _kernel_to_depth(kernel, geometry), without_stride(geometry))


def input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """Its transpose by the image."""
    blocks = winograd.input_gradient(g, _kernel_to_depth(kernel, geometry), without_stride(geometry))
    (sh, sw), (down, across) = geometry.strides, blocks.shape[1:3]
    split = blocks.reshape(-1, down, across, sh, sw, kernel.shape[2]).transpose(0, 1, 3, 2, 4, 5)
    crop = [(0, 0, 0), *((-before, -after, 0) for before, after in _pads(geometry)), (0, 0, 0)]
    return lax.pad(split.reshape(len(g), down * sh, across * sw, -1), jnp.zeros((), g.dtype), crop)


def kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """Its transpose by the kernel."""
    blocks = winograd.kernel_gradient(_to_depth(x, geometry), g, without_stride(geometry))
    (sh, sw), (down, across), out = geometry.strides, blocks.shape[:2], g.shape[-1]
    split = blocks.reshape(down, across, sh, sw, -1, out).transpose(0, 2, 1, 3, 4, 5)
    kh, kw = geometry.window
    return split.reshape(down * sh, across * sw, -1, out)[:kh, :kw]


def without_stride(geometry: Geometry) -> Geometry:
    """The convolution of blocks."""
    window = _blocks(geometry)
    height, width = (o - 1 + k for o, k in zip(geometry.out(), window, strict=True))
    return Geometry((height, width), window, (1, 1), ((0, 0), (0, 0)), 1)


def _blocks(geometry: Geometry) -> Pair:
    """Blocks under the kernel."""
    height, width = (math.ceil(k / s) for k, s in zip(geometry.window, geometry.strides, strict=True))
    return height, width


def _pads(geometry: Geometry) -> list[Pair]:
    """Zeros before and after (negative: pixels cut off) that make an axis whole blocks."""
    wanted = without_stride(geometry).size
    axes = zip(wanted, geometry.strides, geometry.size, geometry.pads, strict=True)
    return [(before, blocks * stride - size - before) for blocks, stride, size, (before, _) in axes]


def _to_depth(x: jax.Array, geometry: Geometry) -> jax.Array:
    """`[batch, H, W, in]` -> `[batch, blocks, blocks, s * s * in]`."""
    edges = [(0, 0, 0), *((*pads, 0) for pads in _pads(geometry)), (0, 0, 0)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), edges)
    (sh, sw), (batch, height, width, channels) = geometry.strides, padded.shape
    split = padded.reshape(batch, height // sh, sh, width // sw, sw, channels).transpose(0, 1, 3, 2, 4, 5)
    return split.reshape(batch, height // sh, width // sw, -1)


def _kernel_to_depth(kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """`[kh, kw, in, out]` -> `[blocks, blocks, s * s * in, out]`."""
    (sh, sw), (down, across) = geometry.strides, _blocks(geometry)
    kh, kw, inputs, out = kernel.shape
    padded = jnp.pad(kernel, ((0, down * sh - kh), (0, across * sw - kw), (0, 0), (0, 0)))
    split = padded.reshape(down, sh, across, sw, inputs, out).transpose(0, 2, 1, 3, 4, 5)
    return split.reshape(down, across, -1, out)
