"""Convolutions of thin groups, one channel in or one channel out: products channel by channel, added up.

All arrays stay `[batch, H, W, channels]`, whose last axis fills vector registers; with a separate axis for the groups
XLA:CPU does not vectorise.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from fdgjax.nn.geometry import Case, Geometry, at_least_float32, taps


def fits(case: Case) -> bool:
    """Whether a group has one channel on either side."""
    groups = case.geometry.groups
    return groups > 1 and min(case.inputs, case.outputs) == groups


def forward(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    """The convolution."""
    kh, kw, inputs, out = kernel.shape
    groups, dtype = geometry.groups, x.dtype
    wide = at_least_float32(dtype)
    # By group, then by input or output within the group: [taps, channels].
    weights = kernel.reshape(kh * kw, inputs, groups, -1).swapaxes(1, 2).reshape(kh * kw, -1).astype(wide)
    shifted = taps(_widened(x, out // groups), geometry)
    total = reduce(
        jnp.add, [tap.astype(wide) * row[None, None, None] for tap, row in zip(shifted, weights, strict=True)]
    )
    if inputs > 1:
        total = total.reshape(*total.shape[:3], groups, inputs).sum(-1)
    return total.astype(dtype)


def kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry) -> jax.Array:
    """The gradient with respect to the kernel, one image after another: products of one image stay in the cache until
    they are summed. No array is shared with `forward`, as XLA would store it for both, once per tap."""
    groups, dtype = geometry.groups, x.dtype
    inputs, outputs = x.shape[-1] // groups, g.shape[-1] // groups
    wide = at_least_float32(dtype)

    def add_image(total: jax.Array, image: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        pixels, gradient = (array[None] for array in image)
        widened = _widened(gradient, inputs).astype(wide)
        shifted = taps(_widened(pixels, outputs), geometry)
        return total + jnp.stack([(tap.astype(wide) * widened).sum((0, 1, 2)) for tap in shifted]), None

    rows, columns = geometry.window
    nothing = jnp.zeros((rows * columns, groups * inputs * outputs), wide)
    sums, _ = lax.scan(add_image, nothing, (x, g))
    split = sums.reshape(*geometry.window, groups, inputs, outputs).swapaxes(2, 3)
    return split.reshape(*geometry.window, inputs, -1).astype(dtype)


def _widened(x: jax.Array, times: int) -> jax.Array:
    """Every channel repeated `times` times; behind a barrier, because XLA would otherwise recompute `x` for every
    tap."""
    return lax.optimization_barrier(x if times == 1 else jnp.repeat(x, times, axis=-1))
