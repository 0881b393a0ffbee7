"""The input gradient of a strided convolution by phases: input pixels that lie alike between two strides.

Along an axis with stride s, kernel k and padding p, the pixel i = s j + r gets the gradient

    x'[s j + r] = sum_m k[u + s m] g[j + (r + p - u) / s - m]          u = (r + p) mod s

so that the pixels of each of the s * s phases r are a plain convolution of g with every s-th row and column of the
kernel. Together they multiply as often as the forward pass, without the zeros that XLA's own convolution puts between
the pixels of `g`, and need no columns in memory.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.nn.formulations import library_forward
from fdgjax.nn.geometry import Geometry, adjoint_kernel
from fdgjax.nn.windows import Pair


class Phase(NamedTuple):
    """One phase along an axis: its first kernel element, the number of them, and the padding of `g`."""

    first: int
    taps: int
    pads: Pair


def input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The gradient with respect to the input, without groups and dilation; without strides there is one phase."""
    (height, width), (sh, sw), inputs = geometry.size, geometry.strides, kernel.shape[2]
    tall, wide = -(-height // sh), -(-width // sw)

    def pixels(row: Phase, column: Phase) -> jax.Array:
        if not row.taps * column.taps:
            return jnp.zeros((len(g), tall, wide, inputs), g.dtype)
        every = kernel[row.first :: sh, column.first :: sw]
        plain = Geometry(geometry.out(), (row.taps, column.taps), (1, 1), (row.pads, column.pads), 1)
        return library_forward(g, adjoint_kernel(every, 1), plain)

    columns = _phases(geometry, 1)
    rows = [jnp.stack([pixels(row, column) for column in columns], axis=3) for row in _phases(geometry, 0)]
    whole = jnp.stack([row.reshape(len(g), tall, wide * sw, inputs) for row in rows], axis=2)
    return whole.reshape(len(g), tall * sh, wide * sw, inputs)[:, :height, :width]


def _phases(geometry: Geometry, axis: int) -> list[Phase]:
    """The phases along an axis."""
    window, stride, before = geometry.window[axis], geometry.strides[axis], geometry.pads[axis][0]
    last, outputs = -(-geometry.size[axis] // stride) - 1, geometry.out()[axis]
    found = []
    for r in range(stride):
        first = (r + before) % stride
        taps, shift = len(range(first, window, stride)), (r + before - first) // stride
        found.append(Phase(first, taps, (taps - 1 - shift, last + shift - (outputs - 1))))
    return found
