"""Sizes, strides and padding of windows, in the forms that convolution and pooling accept;
and constant matrices applied along an axis of images."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pair = tuple[int, int]
Pads = tuple[Pair, Pair]  # ((top, bottom), (left, right))
Size = int | Sequence[int]
Padding = str | int | Sequence[int | Sequence[int]]


def pair(size: Size) -> Pair:
    """`(height, width)` from one number for both, or from the two."""
    if isinstance(size, int):
        return size, size
    if len(size) != 2:
        raise ValueError(f"got a window or stride of {tuple(size)}; expected one number, or (height, width)")
    return int(size[0]), int(size[1])


def pads_of(padding: Padding, size: Pair, window: Pair, strides: Pair) -> Pads:
    """Padding in pixels, from `"SAME"`, `"VALID"`, a number, or per axis a number or `(before, after)`."""
    if isinstance(padding, str):
        rows, columns = lax.padtype_to_pads(size, window, strides, padding.upper())
        return pair(rows), pair(columns)
    if isinstance(padding, int):
        return (padding, padding), (padding, padding)
    if len(padding) != 2:
        raise ValueError(f"got padding {padding}; expected 'SAME', 'VALID', a number, or one entry per axis")
    return pair(padding[0]), pair(padding[1])


def left_product(matrix: np.ndarray, x: jax.Array) -> jax.Array:
    """A constant `matrix [n, k]` times every `[k, c]` of `x [b, k, c]`: `[b, n, c]`.

    A batched product with the constant repeated, because XLA would transpose `x` for an unbatched one.
    """
    return jnp.matmul(jnp.broadcast_to(jnp.asarray(matrix, x.dtype), (len(x), *matrix.shape)), x)


def tall_product(a: jax.Array, b: jax.Array, dtype: jnp.dtype | None = None) -> jax.Array:
    """`a [p, k, m]` transposed times `b [p, k, n]`, for `k` far above `m` and `n`: `[p, m, n]`, summed in `dtype`.

    On a CPU it is several times faster with the narrower matrix first.
    """
    return lax.dot_general(a, b, (((1,), (1,)), ((0,), (0,))), preferred_element_type=dtype)
