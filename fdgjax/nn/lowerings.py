"""How a convolution is computed: formulations with the same numbers, and the table that picks one per
backend and shape.

XLA on the CPU has fast matrix products and, outside loops, fast convolutions. Inside a `while` loop (every
`lax.scan` over minibatches is one) it runs the kernel gradient that autodiff writes tens of times slower,
and a client axis on the kernel makes it a grouped convolution, again many times slower. Every formulation
here is built from operations that the loop leaves alone.

All functions here work on *one* client: `x [batch, H, W, in]`, `kernel [kh, kw, in/groups, out]`,
`g [batch, H', W', out]` (the gradient of the output).
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.windows import Pads, Pair
from fdgjax.registry import lookup


class Geometry(NamedTuple):
    """What a convolution needs to know besides its arrays; hashable, so that it can be a compile-time
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
        return (spread + sum(self.pads[axis]) - self.window[axis]) // self.strides[axis] + 1

    @property
    def pointwise(self) -> bool:
        """Whether every output pixel is a linear map of the input pixel at the same place."""
        return self._replace(size=(1, 1)) == Geometry((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), self.groups)

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


def adjoint_kernel(kernel: jax.Array, groups: int) -> jax.Array:
    """`[kh, kw, in/groups, out]` turned by 180 degrees with inputs and outputs swapped: `[kh, kw,
    out/groups, in]`."""
    kh, kw, inputs, out = kernel.shape
    split = kernel[::-1, ::-1].reshape(kh, kw, inputs, groups, out // groups)
    return split.transpose(0, 1, 4, 3, 2).reshape(kh, kw, out // groups, groups * inputs)


def _spread(x: jax.Array, geometry: Geometry) -> jax.Array:
    """`x` with its dilation and padding written out (negative padding crops)."""
    edges = [
        (0, 0, 0),
        *((lo, hi, d - 1) for (lo, hi), d in zip(geometry.pads, geometry.dilation, strict=True)),
        (0, 0, 0),
    ]
    return lax.pad(x, jnp.zeros((), x.dtype), edges) if any(map(any, edges)) else x


def _taps(x: jax.Array, geometry: Geometry) -> list[jax.Array]:
    """The input pixel under each kernel element: kh * kw arrays `[batch, H', W', in]`."""
    padded, (kh, kw), (sh, sw), (oh, ow) = (
        _spread(x, geometry),
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


def _wide(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype to sum in: at least float32."""
    return jnp.dtype(jnp.float32) if dtype.itemsize < 4 else dtype


def library_forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """XLA's own convolution."""
    return lax.conv_general_dilated(
        x,
        kernel,
        geometry.strides,
        geometry.pads,
        lhs_dilation=geometry.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=geometry.groups,
    )


def im2col_forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """All shifted inputs side by side, then one matrix product: `[B*H'*W', kh*kw*in] @ [kh*kw*in, out]`."""
    if geometry.groups > 1:
        return shift_forward(x, kernel, geometry)
    columns = jnp.concatenate(_taps(x, geometry), axis=-1)
    return jnp.matmul(columns, kernel.reshape(-1, kernel.shape[-1]))


def _taps_grouped(x: jax.Array, geometry: Geometry) -> list[jax.Array]:
    """`_taps` with the channels split: `[batch, H', W', groups, in / groups]`."""
    return [tap.reshape(*tap.shape[:3], geometry.groups, -1) for tap in _taps(x, geometry)]


def _elementwise(groups: int, inputs: int) -> bool:
    """Whether groups are so thin that products per channel beat one small matrix product per group."""
    return groups > 1 and inputs <= 4


def shift_forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The sum over kernel elements of the shifted input times that element's `[in, out]` matrix."""
    kh, kw, inputs, out = kernel.shape
    groups, wide = geometry.groups, _wide(x.dtype)
    matrices = kernel.reshape(kh * kw, inputs, groups, out // groups)
    taps = _taps_grouped(x, geometry)
    if _elementwise(groups, inputs):
        terms = [
            tap[..., i, None].astype(wide) * matrix[i].astype(wide)[None, None, None]
            for tap, matrix in zip(taps, matrices, strict=True)
            for i in range(inputs)
        ]
    else:
        terms = [
            jnp.einsum("bhwgi,igo->bhwgo", tap, matrix, preferred_element_type=wide)
            for tap, matrix in zip(taps, matrices, strict=True)
        ]
    total = reduce(jnp.add, terms)
    return total.reshape(*total.shape[:3], out).astype(x.dtype)


def shift_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """Per kernel element one matrix product over all pixels: shifted input `[B*H'*W', in]` transposed times `g`."""
    groups, inputs, out = geometry.groups, x.shape[-1] // geometry.groups, g.shape[-1]
    grouped, wide = g.reshape(*g.shape[:3], groups, out // groups), _wide(x.dtype)
    taps = _taps_grouped(x, geometry)
    if _elementwise(groups, inputs):
        products = [
            (tap[..., i, None].astype(wide) * grouped.astype(wide)).sum((0, 1, 2))
            for tap in taps
            for i in range(inputs)
        ]
    else:
        products = [jnp.einsum("bhwgi,bhwgo->igo", tap, grouped, preferred_element_type=wide) for tap in taps]
    return jnp.stack(products).reshape(*geometry.window, inputs, out).astype(x.dtype)


def transposed_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """A plain convolution of `x` (channels as batch) with `g` (batch as channels): no special layout for XLA
    to trip over."""
    if geometry.groups > 1:
        return shift_kernel_gradient(x, g, geometry)
    turned = lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0),
        g.transpose(1, 2, 0, 3),
        (1, 1),
        _exact_pads(geometry),
        rhs_dilation=geometry.strides,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return turned.transpose(1, 2, 0, 3)


def _exact_pads(geometry: Geometry) -> list[Pair]:
    """The padding with the rows and columns cut off that no window reaches."""
    sizes = zip(geometry.size, geometry.out(), geometry.window, geometry.strides, geometry.pads, strict=True)
    return [(lo, (o - 1) * s + k - n - lo) for n, o, k, s, (lo, _) in sizes]


def gcols_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """`x` transposed times the im2col of `g`, which is the very array that `im2col` builds for the input
    gradient."""
    if geometry.groups > 1:
        return shift_kernel_gradient(x, g, geometry)
    columns = jnp.concatenate(_taps(g, geometry.adjoint()), axis=-1)
    product = jnp.einsum("bhwi,bhwc->ic", x, columns, preferred_element_type=_wide(x.dtype))
    turned = product.reshape(x.shape[-1], *geometry.window, g.shape[-1])[:, ::-1, ::-1]
    return turned.transpose(1, 2, 0, 3).astype(x.dtype)


def xcols_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The im2col of `x`, transposed, times `g`: one matrix product, best with few input channels."""
    if geometry.groups > 1:
        return shift_kernel_gradient(x, g, geometry)
    columns = jnp.concatenate(_taps(x, geometry), axis=-1)
    product = jnp.einsum("bhwc,bhwo->co", columns, g, preferred_element_type=_wide(x.dtype))
    return product.reshape(*geometry.window, x.shape[-1], g.shape[-1]).astype(x.dtype)


def library_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """What autodiff of XLA's convolution writes."""
    shape = (*geometry.window, x.shape[-1] // geometry.groups, g.shape[-1])
    transpose = jax.linear_transpose(lambda k: library_forward(x, k, geometry), jax.ShapeDtypeStruct(shape, x.dtype))
    return transpose(g)[0]


Formulation = Callable[[jax.Array, jax.Array, Geometry], jax.Array]

FORWARD: Mapping[str, Formulation] = {
    "library": library_forward,
    "im2col": im2col_forward,
    "shift": shift_forward,
}

KERNEL_GRADIENT: Mapping[str, Formulation] = {
    "library": library_kernel_gradient,
    "shift": shift_kernel_gradient,
    "transposed": transposed_kernel_gradient,
    "gcols": gcols_kernel_gradient,
    "xcols": xcols_kernel_gradient,
}


class Plan(NamedTuple):
    """Names of the formulations of the three maps, and how further clients are run: `loop`, or `batch`
    (library's vmap)."""

    forward: str
    input_gradient: str
    kernel_gradient: str
    clients: str


LIBRARY = Plan("library", "library", "library", "batch")
IM2COL = Plan("im2col", "im2col", "xcols", "batch")


def cpu_plan(geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """The measured choice for XLA:CPU."""
    if geometry.groups > 1:
        return Plan("shift", "shift", "shift", "loop")
    if geometry.pointwise:  # im2col is then a plain matrix product
        return Plan("im2col", "im2col", "xcols", "loop")
    if inputs <= 4:  # images: the library's convolution cannot fill its registers from so few channels
        return Plan("im2col", "library", "xcols", "loop")
    if outputs <= inputs:
        return Plan("library", "library", "transposed", "loop")
    return Plan("library", "library", "shift", "loop")


PLANS: Mapping[str, Callable[[Geometry, int, int], Plan]] = {
    "cpu": cpu_plan,
    "library": lambda geometry, inputs, outputs: LIBRARY,
    "im2col": lambda geometry, inputs, outputs: IM2COL,
}


def choose(plan: Plan | str, geometry: Geometry, inputs: int, outputs: int) -> Plan:
    """`plan` itself, or what the one of that name picks for a convolution from `inputs` to `outputs` channels."""
    if isinstance(plan, Plan):
        return plan
    return lookup("convolution plan", plan, PLANS)(geometry, inputs, outputs)
