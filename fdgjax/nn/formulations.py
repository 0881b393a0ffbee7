"""Formulations of a convolution and of its two gradients: different operations, the same results.

All functions here, in `folded` and in `winograd` work on *one* client: `x [batch, H, W, in]`, `kernel [kh, kw,
in/groups, out]`, `g [batch, H', W', out]` (the gradient of the output). `fdgjax.nn.lowerings` decides which one is used
where, and which convolutions each can compute.
"""

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import Geometry, adjoint_kernel, at_least_float32, taps
from fdgjax.nn.windows import Pair, tall_product

Formulation = Callable[[jax.Array, jax.Array, Geometry], jax.Array]


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
    columns = jnp.concatenate(taps(x, geometry), axis=-1)
    return jnp.matmul(columns, kernel.reshape(-1, kernel.shape[-1]))


def _shifted(x: jax.Array, geometry: Geometry) -> list[jax.Array]:
    """`taps` with the channels split: `[batch, H', W', groups, in / groups]`."""
    return [tap.reshape(*tap.shape[:3], geometry.groups, -1) for tap in taps(x, geometry)]


def shift_forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The sum over kernel elements of the shifted input times that element's `[in, out]` matrix."""
    kh, kw, inputs, out = kernel.shape
    matrices = kernel.reshape(kh * kw, inputs, geometry.groups, -1)
    terms = [
        jnp.einsum("bhwgi,igo->bhwgo", tap, matrix, preferred_element_type=at_least_float32(x.dtype))
        for tap, matrix in zip(_shifted(x, geometry), matrices, strict=True)
    ]
    total = reduce(jnp.add, terms)
    return total.reshape(*total.shape[:3], out).astype(x.dtype)


def by_adjoint(forward: Formulation) -> Formulation:
    """The input gradient as the convolution of `g` with the turned kernel."""

    def input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
        return forward(g, adjoint_kernel(kernel, geometry.groups), geometry.adjoint())

    return input_gradient


def columns_input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The transpose of `im2col`: one matrix product `[B*H'*W', out] @ [out, kh*kw*in]`, whose columns are added up at
    their pixels. The kernel is not turned, which for few pixels would cost more than the columns."""
    image = jax.ShapeDtypeStruct((len(g), *geometry.size, kernel.shape[2]), g.dtype)
    return jax.linear_transpose(lambda x: im2col_forward(x, kernel, geometry), image)(g)[0]


def shift_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """Per kernel element one matrix product over all pixels: shifted input `[B*H'*W', in]` transposed times `g`."""
    groups, inputs, out = geometry.groups, x.shape[-1] // geometry.groups, g.shape[-1]
    grouped, wide = g.reshape(*g.shape[:3], groups, out // groups), at_least_float32(x.dtype)
    products = [
        jnp.einsum("bhwgi,bhwgo->igo", tap, grouped, preferred_element_type=wide) for tap in _shifted(x, geometry)
    ]
    return jnp.stack(products).reshape(*geometry.window, inputs, out).astype(x.dtype)


def transposed_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """A plain convolution of `x` (channels as batch) with `g` (batch as channels), for which XLA needs no special
    layout."""
    turned = lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0),
        g.transpose(1, 2, 0, 3),
        (1, 1),
        _exact_pads(geometry),
        rhs_dilation=geometry.strides,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return turned.transpose(1, 2, 0, 3)


LARGE = 2**15
"""Number of pixels from which an image counts as large."""
FEW = 2
"""Large images that a CPU's cache holds at a time."""


def few_images_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """`transposed_kernel_gradient` of a few large images at a time, added up."""
    if len(x) <= FEW or x.shape[1] * x.shape[2] < LARGE:
        return transposed_kernel_gradient(x, g, geometry)

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        pixels, gradients = (lax.dynamic_slice_in_dim(array, FEW * i, FEW) for array in (x, g))
        return total + transposed_kernel_gradient(pixels, gradients, geometry).astype(wide)

    wide, whole = at_least_float32(x.dtype), len(x) // FEW
    total = lax.fori_loop(0, whole, add, jnp.zeros((*geometry.window, x.shape[3], g.shape[3]), wide))
    if len(x) > whole * FEW:
        total += transposed_kernel_gradient(x[whole * FEW :], g[whole * FEW :], geometry).astype(wide)
    return total.astype(x.dtype)


def rows_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """One image after another, with one product for each row of the kernel:

        k'[u] = g' x[u]          g' [out, H' * W'], x[u] [H' * W', kw * in]

    An image's arrays stay in the cache, and the rows of `x[u]` are rows of one array for all `u`.
    """
    (kh, kw), (height, width), (down, across) = geometry.window, geometry.out(), geometry.strides
    tall, broad, wide = (height - 1) * down + 1, (width - 1) * across + 1, at_least_float32(x.dtype)
    inputs, out = x.shape[3], g.shape[3]
    edges = [*((*pad, 0) for pad in geometry.pads), (0, 0, 0)]

    def add_image(total: jax.Array, image: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        padded = lax.pad(image[0], jnp.zeros((), x.dtype), edges)
        columns = jnp.concatenate([padded[:, v : v + broad : across] for v in range(kw)], axis=-1)
        # Transposed once, instead of in each product.
        left = lax.optimization_barrier(image[1].reshape(-1, out).T)
        products = [
            jnp.matmul(left, columns[u : u + tall : down].reshape(-1, kw * inputs), preferred_element_type=wide)
            for u in range(kh)
        ]
        return total + jnp.stack(products), None

    total, _ = lax.scan(add_image, jnp.zeros((kh, out, kw * inputs), wide), (x, g))
    return total.reshape(kh, out, kw, inputs).transpose(0, 2, 3, 1).astype(x.dtype)


def _exact_pads(geometry: Geometry) -> list[Pair]:
    """The padding with the rows and columns cut off that no window reaches."""
    sizes = zip(geometry.size, geometry.out(), geometry.window, geometry.strides, geometry.pads, strict=True)
    return [(lo, (o - 1) * s + k - n - lo) for n, o, k, s, (lo, _) in sizes]


def xcols_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The im2col of `x`, transposed, times `g`: one matrix product, best with few input channels."""
    columns = jnp.concatenate(taps(x, geometry), axis=-1)
    columns, flat = (array.reshape(1, -1, array.shape[-1]) for array in (columns, g))
    product = tall_product(columns, flat, at_least_float32(x.dtype))
    return product.reshape(*geometry.window, x.shape[-1], g.shape[-1]).astype(x.dtype)


def library_kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The kernel gradient by autodiff of XLA's convolution."""
    shape = (*geometry.window, x.shape[-1] // geometry.groups, g.shape[-1])
    transpose = jax.linear_transpose(lambda k: library_forward(x, k, geometry), jax.ShapeDtypeStruct(shape, x.dtype))
    return transpose(g)[0]
