"""The shape of a convolution, and the input pixels under its kernel: used by all formulations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.windows import Pads, Pair


class Geometry(NamedTuple):
    """The static parameters of a convolution; hashable, so that it can be a compile-time
    parameter."""

    size: Pair  # height and width of the input
    window: Pair  # height and width of the kernel
    strides: Pair
    pads: Pads  # ((top, bottom), (left, right))
    groups: int
    dilation: Pair = (1, 1)  # spacing of the input pixels: more only in the gradient of a strided convolution

    def out(self) -> Pair:
        """Height and width of the output."""
        height, width = (self._out(axis) for axis in (0, 1))
        return height, width

    def _out(self, axis: int) -> int:
        spread = (self.size[axis] - 1) * self.dilation[axis] + 1
        return max(0, (spread + sum(self.pads[axis]) - self.window[axis]) // self.strides[axis] + 1)

    @property
    def pointwise(self) -> bool:
        """Whether every output pixel is a linear map of the input pixel at the same place."""
        return self._replace(size=(1, 1)) == Geometry((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), self.groups)

    @property
    def plain(self) -> bool:
        """Whether there are no groups, no strides and no dilation."""
        return self.strides == self.dilation == (1, 1) and self.groups == 1

    def adjoint(self) -> "Geometry":
        """The convolution that maps the output gradient to the input gradient, with the kernel of
        `adjoint_kernel`.
        """
        top, left = (self._adjoint_pads(axis) for axis in (0, 1))
        return Geometry(self.out(), self.window, (1, 1), (top, left), self.groups, self.strides)

    def _adjoint_pads(self, axis: int) -> Pair:
        before = self.window[axis] - 1 - self.pads[axis][0]
        spread = (self._out(axis) - 1) * self.strides[axis] + 1
        return before, self.size[axis] + self.window[axis] - 1 - before - spread


class Case(NamedTuple):
    """A convolution with its batch size and numbers of input and output channels, from which a plan is chosen."""

    geometry: Geometry
    batch: int
    inputs: int
    outputs: int

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        height, width = self.geometry.out()
        return self.batch * height * width


def adjoint_kernel(kernel: jax.Array, groups: int) -> jax.Array:
    """`[kh, kw, in/groups, out]` turned by 180 degrees with inputs and outputs swapped: `[kh, kw,
    out/groups, in]`."""
    kh, kw, inputs, out = kernel.shape
    split = kernel[::-1, ::-1].reshape(kh, kw, inputs, groups, out // groups)
    return split.transpose(0, 1, 4, 3, 2).reshape(kh, kw, out // groups, groups * inputs)


def dilated(x: jax.Array, geometry: Geometry) -> jax.Array:
    """`x` with its dilation and padding written out (negative padding crops)."""
    edges = [
        (0, 0, 0),
        *((lo, hi, d - 1) for (lo, hi), d in zip(geometry.pads, geometry.dilation, strict=True)),
        (0, 0, 0),
    ]
    return lax.pad(x, jnp.zeros((), x.dtype), edges) if any(map(any, edges)) else x


def taps(x: jax.Array, geometry: Geometry) -> list[jax.Array]:
    """The input pixel under each kernel element: kh * kw arrays `[batch, H', W', in]`."""
    padded, (kh, kw), (sh, sw), (oh, ow) = (
        dilated(x, geometry),
        geometry.window,
        geometry.strides,
        geometry.out(),
    )
    batch, _, _, channels = padded.shape
    return [
        lax.slice(
            padded,
            (0, i, j, 0),
            (batch, i + (oh - 1) * sh + 1, j + (ow - 1) * sw + 1, channels),
            (1, sh, sw, 1),
        )
        for i in range(kh)
        for j in range(kw)
    ]


def at_least_float32(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype to sum in: at least float32."""
    return jnp.dtype(jnp.float32) if dtype.itemsize < 4 else dtype
