"""Convolutions of float32 arrays as products of operands rounded to bfloat16, summed in float32: for processors with
instructions for such products.

What decides the time is how operands are brought together, so no number is converted on the way: an image is rounded
once, and its bits are padded, shifted and transposed as whole numbers. XLA:CPU computes anything else in bfloat16 by
converting to float32 and back at each operation; arrays that are no operands therefore stay in float32.
"""

from contextlib import AbstractContextManager
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import Geometry, dilated

PRECISION = "BF16_BF16_F32"
"""JAX's name for products of bfloat16 operands with float32 sums (`jax.lax.DotAlgorithmPreset`)."""


def rounded_products() -> AbstractContextManager[None]:
    """The products of all that is traced within, and of its derivatives, may round their operands to bfloat16 and are
    summed in float32; all else stays as it is."""
    return jax.default_matmul_precision(PRECISION)


def rounds_products() -> bool:
    """Whether this is traced within `rounded_products`."""
    return bool(jax.config.jax_default_matmul_precision == PRECISION)  # type: ignore[attr-defined]


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution: the inputs of a row of the kernel side by side, then one product for each row.

    y[i] = sum_u c[i * s + u] k[u]          c [B * W', kw * in], k[u] [kw * in, out]
    """
    kh, kw, inputs, out = kernel.shape
    columns, rows = _columns(x, geometry), kernel.astype(jnp.bfloat16).reshape(kh, kw * inputs, out)
    terms = [_product(_row(columns, u, geometry), rows[u]) for u in range(kh)]
    return reduce(jnp.add, terms).astype(x.dtype)


def kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The gradient with respect to the kernel, one product for each of its rows; the left sides are contiguous rows of
    an image whose channels come first and whose batch comes last, so that a shift moves whole blocks:

        k'[u] = c[u] g          c[u] [kw * in, H' * W' * B], g [H' * W' * B, out]
    """
    (kh, kw), (height, width), (down, across) = geometry.window, geometry.out(), geometry.strides
    inputs, out = x.shape[3], g.shape[3]
    padded = dilated(_bits(x), geometry).transpose(3, 1, 2, 0)
    right = _bits(g).transpose(1, 2, 0, 3).reshape(-1, out)
    tall, wide = (height - 1) * down + 1, (width - 1) * across + 1
    columns = jnp.concatenate([padded[:, :, v : v + wide : across] for v in range(kw)], axis=0)
    rows = (columns[:, u : u + tall : down].reshape(kw * inputs, -1) for u in range(kh))
    products = [_product(row, right) for row in rows]
    return jnp.stack(products).reshape(kh, kw, inputs, out).astype(x.dtype)


def pointwise_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The same for a 1x1 kernel: the pixels, transposed in memory, times `g`."""
    (height, width), (down, across) = geometry.out(), geometry.strides
    pixels = dilated(_bits(x), geometry)[:, : (height - 1) * down + 1 : down, : (width - 1) * across + 1 : across]
    left = lax.optimization_barrier(pixels.reshape(-1, x.shape[3]).T)
    return _product(left, _bits(g).reshape(-1, g.shape[3]))[None, None].astype(x.dtype)


def _bits(x: jax.Array) -> jax.Array:
    """`x` rounded to bfloat16, once for all that uses it, as whole numbers."""
    return lax.bitcast_convert_type(lax.optimization_barrier(x.astype(jnp.bfloat16)), jnp.uint16)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """The product of the numbers whose bits these are, where they are bits, in float32."""
    both = (lax.bitcast_convert_type(one, jnp.bfloat16) if one.dtype == jnp.uint16 else one for one in (a, b))
    return jnp.matmul(*both, preferred_element_type=jnp.float32)


def _columns(x: jax.Array, geometry: Geometry) -> jax.Array:
    """The bits of the pixels under one row of the kernel, side by side: `[B, padded H, W', kw * in]`."""
    padded, across, (_, kw) = dilated(_bits(x), geometry), geometry.strides[1], geometry.window
    last = (geometry.out()[1] - 1) * across + 1
    return jnp.concatenate([padded[:, :, v : v + last : across] for v in range(kw)], axis=-1)


def _row(columns: jax.Array, u: int, geometry: Geometry) -> jax.Array:
    """The rows of `columns` under row `u` of the kernel at every output: `[B, H', W', kw * in]`."""
    down = geometry.strides[0]
    return columns[:, u : u + (geometry.out()[0] - 1) * down + 1 : down]
