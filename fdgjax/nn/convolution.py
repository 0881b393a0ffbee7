"""`conv2d`: a convolution that stays fast inside compiled loops, and when a client axis is added to inputs
and kernels.

A convolution `y = x * k` is bilinear, and so are its two gradients:

    conv(x, k) -> y        input_gradient(y', k) -> x'        kernel_gradient(x, y') -> k'

Each of the three is the transpose of another one, with respect to either argument. They are three JAX
primitives closed under differentiation (forward, reverse, any order) and under `vmap`. Inside, every array
has a leading client axis; `vmap` over both arguments merges into it, `vmap` over one argument merges into
that argument's batch or channels. How they are computed is decided when the program is lowered, for the
platform it is lowered to, by the table in `fdgjax.nn.lowerings`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fdgjax.nn import lowerings
from fdgjax.nn.geometry import Case, Geometry
from fdgjax.nn.lowerings import ConvolutionPlan
from fdgjax.nn.rounded import rounds_products
from fdgjax.nn.windows import Padding, Pair, Size, pads_of, pair


def conv2d(
    x: jax.Array,
    kernel: jax.Array,
    *,
    strides: Size = (1, 1),
    padding: Padding,
    groups: int = 1,
    plan: ConvolutionPlan | str | None = None,
) -> jax.Array:
    """Two-dimensional convolution, with the results of `lax.conv_general_dilated` for NHWC images and HWIO
    kernels.

        y[b, i, j, o] = sum_{u, v, c} x[b, i*s + u - pad, j*s + v - pad, c] k[u, v, c, o]

    Works under `jit`, `grad`, `jvp`, `vmap` (of either argument or both, nested), `scan`, and in float32 and
    bfloat16 (sums in float32 wherever the library allows).

    Args:
      x: `[batch, H, W, in]`.
      kernel: `[kh, kw, in / groups, out]`, of the same dtype.
      strides: one number, or one per axis.
      padding: `"SAME"`, `"VALID"`, one number of pixels for all four sides, or per axis a number or
        `(before, after)`.
      groups: number of groups of channels, each convolved alone (`in` groups: depthwise).
      plan: how to compute, a `ConvolutionPlan` or a name in `fdgjax.nn.lowerings.PLANS`; None picks one by platform,
        and `bfloat16` within `fdgjax.nn.rounded.rounded_products`.

    Returns:
      `[batch, H', W', out]`.

    Raises:
      ValueError: shapes or dtypes that do not fit.
    """
    if x.ndim != 4 or kernel.ndim != 4 or x.shape[3] != kernel.shape[2] * groups or kernel.shape[3] % groups:
        raise ValueError(
            f"conv2d got x {x.shape}, kernel {kernel.shape}, groups={groups}; expected x [batch, H, W, in] "
            f"and kernel [kh, kw, in / groups, out], out divisible by groups"
        )
    if x.dtype != kernel.dtype:
        raise ValueError(f"conv2d got x {x.dtype} and kernel {kernel.dtype}; expected one dtype, cast one of them")
    size, window = (x.shape[1], x.shape[2]), (kernel.shape[0], kernel.shape[1])
    steps = pair(strides)
    geometry = Geometry(size, window, steps, pads_of(padding, size, window, steps), groups)
    plan = plan or ("bfloat16" if rounds_products() else None)
    return _conv2d(x, kernel, geometry=geometry, plan=plan)


DEFAULTS = ("cpu", "cuda")
"""The platforms for which the entry of `PLANS` of that name chooses; elsewhere `library` does."""

# Up to this number of clients the compiled program is unrolled, which runs up to a quarter faster than a loop but
# takes longer to compile, in proportion to the number of clients.
UNROLLED_CLIENTS = 12


@partial(jax.jit, static_argnames=("geometry", "plan"), inline=True)
def _conv2d(x: jax.Array, kernel: jax.Array, *, geometry: Geometry, plan: ConvolutionPlan | str | None) -> jax.Array:
    x, kernel = _alike(x[None], kernel[None])
    return conv_p.bind(x, kernel, geometry=geometry, plan=plan)[0]


def _alike(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Inside `shard_map`: all arrays varying over the mesh axes over which any of them varies."""
    varying: list[frozenset[str]] = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    everywhere = frozenset[str]().union(*varying)
    return tuple(
        lax.pcast(array, tuple(sorted(everywhere - own)), to="varying") if everywhere - own else array
        for array, own in zip(arrays, varying, strict=True)
    )


# What the three primitives compute, for one client, by the names in a plan.


def _forward(x: jax.Array, kernel: jax.Array, geometry: Geometry, plan: ConvolutionPlan) -> jax.Array:
    return lowerings.FORWARD[plan.forward](x, kernel, geometry)


def _input_gradient(g: jax.Array, kernel: jax.Array, geometry: Geometry, plan: ConvolutionPlan) -> jax.Array:
    return lowerings.INPUT_GRADIENT[plan.input_gradient](g, kernel, geometry)


def _kernel_gradient(x: jax.Array, g: jax.Array, geometry: Geometry, plan: ConvolutionPlan) -> jax.Array:
    return lowerings.KERNEL_GRADIENT[plan.kernel_gradient](x, g, geometry)


def _each_client(function: Callable[..., jax.Array], clients: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """`function` on every client: one after another (`loop`), or as one batched operation (`batch`)."""
    if a.shape[0] == 1:
        return function(a[0], b[0])[None]
    if clients == "batch":
        return jax.vmap(function)(a, b)
    if a.shape[0] <= UNROLLED_CLIENTS:
        return jnp.stack([function(one, other) for one, other in zip(a, b, strict=True)])
    return lax.map(lambda both: function(*both), (a, b))


# The three primitives: shapes, lowering, derivatives, vmap.


def _channels(name: str, a: Any, b: Any, groups: int) -> Pair:
    """Input and output channels of the convolution that the primitive's two arguments belong to."""
    if name == "kernel_gradient":
        return a.shape[-1], b.shape[-1]
    return b.shape[-2] * groups, b.shape[-1]


def _result_shape(name: str, a: Any, b: Any, geometry: Geometry) -> tuple[int, ...]:
    clients, batch = a.shape[:2]
    inputs, outputs = _channels(name, a, b, geometry.groups)
    return {
        "conv": (clients, batch, *geometry.out(), outputs),
        "input_gradient": (clients, batch, *geometry.size, inputs),
        "kernel_gradient": (clients, *geometry.window, inputs // geometry.groups, outputs),
    }[name]


def _primitive(name: str, one_client: Callable[..., jax.Array]) -> Primitive:
    """A primitive with its shape rule and its lowering on every platform."""

    def compute(
        a: jax.Array, b: jax.Array, *, geometry: Geometry, plan: ConvolutionPlan | str | None, platform: str
    ) -> jax.Array:
        result = _result_shape(name, a, b, geometry)
        if 0 in (*a.shape, *b.shape, *result):  # no images, or images without outputs: sums of nothing
            return jnp.zeros(result, a.dtype)
        default = platform if platform in DEFAULTS else "library"
        case = Case(geometry, a.shape[1], *_channels(name, a, b, geometry.groups))
        chosen = lowerings.chosen_plan(plan or default, case)
        return _each_client(partial(one_client, geometry=geometry, plan=chosen), chosen.clients, a, b)

    primitive = Primitive(f"fdgjax_{name}")
    primitive.def_impl(lambda a, b, **static: compute(a, b, **static, platform=jax.default_backend()))
    primitive.def_abstract_eval(lambda a, b, *, geometry, plan: a.update(shape=_result_shape(name, a, b, geometry)))
    for platform in (*DEFAULTS, None):
        lower = partial(compute, platform=platform or "other")
        mlir.register_lowering(primitive, mlir.lower_fun(lower, multiple_results=False), platform=platform)
    return primitive


conv_p = _primitive("conv", _forward)
input_gradient_p = _primitive("input_gradient", _input_gradient)
kernel_gradient_p = _primitive("kernel_gradient", _kernel_gradient)

# `defbilinear` takes, per argument, the map from the result's cotangent `t` to that argument's cotangent.
ad.defbilinear(
    conv_p,
    lambda t, x, kernel, **static: input_gradient_p.bind(t, kernel, **static),
    lambda t, x, kernel, **static: kernel_gradient_p.bind(x, t, **static),
)
ad.defbilinear(
    input_gradient_p,
    lambda t, g, kernel, **static: conv_p.bind(t, kernel, **static),
    lambda t, g, kernel, **static: kernel_gradient_p.bind(t, g, **static),
)
ad.defbilinear(
    kernel_gradient_p,
    lambda t, x, g, **static: input_gradient_p.bind(g, t, **static),
    lambda t, x, g, **static: conv_p.bind(x, t, **static),
)


def _into(array: jax.Array, axis: int) -> jax.Array:
    """The leading axis of `array` merged into `axis` (counted without it), as the slower index of the two."""
    moved = jnp.moveaxis(array, 0, axis)
    merged = moved.shape[axis] * moved.shape[axis + 1]
    return moved.reshape(*moved.shape[:axis], merged, *moved.shape[axis + 2 :])


def _out_of(array: jax.Array, axis: int, size: int) -> jax.Array:
    """The inverse of `_into`."""
    split = array.reshape(*array.shape[:axis], size, array.shape[axis] // size, *array.shape[axis + 1 :])
    return jnp.moveaxis(split, axis, 0)


def _batch_rule(primitive: Primitive, free: tuple[Pair, Pair], operands: Any, axes: Any, **static: Any) -> Any:
    """`vmap` of a primitive.

    Args:
      primitive: one of the three.
      free: for each operand that is mapped alone, which of its axes the new axis may be merged into, and which axis
        of the result that is.
      operands: the two arrays.
      axes: the axis that is mapped in each, or None.
      static: the primitive's parameters.
    """
    moved = [
        array if axis is None else jnp.moveaxis(array, axis, 0) for array, axis in zip(operands, axes, strict=True)
    ]
    size = next(array.shape[0] for array, axis in zip(moved, axes, strict=True) if axis is not None)
    for own in (0, 1):
        into, out_of = free[own]
        if axes[1 - own] is None and (into == 1 or static["geometry"].groups == 1):
            moved[own] = _into(moved[own], into)
            return _out_of(primitive.bind(*moved, **static), out_of, size), 0
    full = [
        jnp.broadcast_to(array, (size, *array.shape)) if axis is None else array
        for array, axis in zip(moved, axes, strict=True)
    ]
    merged = primitive.bind(*(_into(array, 0) for array in full), **static)
    return _out_of(merged, 0, size), 0


# Axes of [clients, batch, H, W, channels] and [clients, kh, kw, in / groups, out]: a batch axis (1) can
# always take one more axis; a channel axis only where there are no groups.
batching.primitive_batchers[conv_p] = partial(_batch_rule, conv_p, ((1, 1), (4, 4)))
batching.primitive_batchers[input_gradient_p] = partial(_batch_rule, input_gradient_p, ((1, 1), (3, 4)))
batching.primitive_batchers[kernel_gradient_p] = partial(_batch_rule, kernel_gradient_p, ((4, 3), (4, 4)))
