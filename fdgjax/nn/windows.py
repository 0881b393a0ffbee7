"""Sizes, strides and padding of windows, in the spellings that convolution and pooling accept."""

from collections.abc import Sequence

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
