"""`conv2d` against the library's convolution: same numbers, under every transformation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fdgjax.nn import Conv, conv2d
from fdgjax.nn.convolution import UNROLLED_CLIENTS
from fdgjax.nn.formulations import LARGE
from fdgjax.nn.geometry import Case as GeometryCase
from fdgjax.nn.geometry import Geometry
from fdgjax.nn.lowerings import (
    FITS,
    FORWARD,
    INPUT_GRADIENT,
    KERNEL_GRADIENT,
    PLANS,
    ConvolutionPlan,
    chosen_plan,
    cpu_plan,
)

Case = dict[str, Any]


def library(x: jax.Array, kernel: jax.Array, *, strides: Any, padding: Any, groups: int) -> jax.Array:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=names, feature_group_count=groups)


# Options, shape of x, shape of the kernel. Each new shape is a new program, so they are few and differ in everything:
# even and odd, square and not, strides on either axis or none, all kinds of padding, no groups, some and depthwise.
CASES: dict[str, tuple[Case, tuple[int, ...], tuple[int, ...]]] = {
    "usual": ({"strides": (1, 1), "padding": "SAME", "groups": 1}, (2, 6, 6, 3), (3, 3, 3, 4)),
    "pointwise": ({"strides": (1, 1), "padding": "VALID", "groups": 1}, (2, 4, 5, 5), (1, 1, 5, 2)),
    "strided and uneven": ({"strides": (2, 3), "padding": ((0, 2), (1, 0)), "groups": 1}, (2, 9, 7, 6), (5, 2, 6, 3)),
    "a stride beyond the window": ({"strides": (3, 1), "padding": "SAME", "groups": 1}, (2, 5, 6, 1), (2, 6, 1, 2)),
    "padding beyond the window": (
        {"strides": (1, 1), "padding": ((2, 2), (0, 1)), "groups": 1},
        (2, 4, 8, 2),
        (1, 4, 2, 1),
    ),
    "grouped": ({"strides": (1, 2), "padding": "SAME", "groups": 2}, (2, 7, 5, 6), (4, 3, 3, 4)),
    "depthwise": ({"strides": (2, 1), "padding": ((1, 1), (2, 0)), "groups": 4}, (2, 5, 6, 4), (3, 5, 1, 8)),
}


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def value_and_both_gradients(function: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array) -> Any:
    y, pullback = jax.vjp(function, x, kernel)
    return y, pullback(jnp.sin(y))


def close(got: Any, expected: Any) -> None:
    chex.assert_trees_all_equal_shapes_and_dtypes(got, expected)
    chex.assert_trees_all_close(got, expected, rtol=1e-4, atol=1e-4)


UNROUNDED = [name for name in PLANS if name != "bfloat16"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients_are_the_librarys(case: str) -> None:
    options, *shapes = CASES[case]
    x, kernel = arrays(*shapes)
    functions = [partial(library, **options), *(partial(conv2d, plan=plan, **options) for plan in UNROUNDED)]
    # All plans are one program.
    theirs, *ours = jax.jit(lambda *both: [value_and_both_gradients(f, *both) for f in functions])(x, kernel)
    for got in ours:
        close(got, theirs)


EVERY = {name: ConvolutionPlan(name, "library", "library", "loop") for name in FORWARD}
EVERY |= {f"input {name}": ConvolutionPlan("library", name, "library", "loop") for name in INPUT_GRADIENT}
EVERY |= {f"kernel {name}": ConvolutionPlan("library", "library", name, "loop") for name in KERNEL_GRADIENT}
EVERY = {name: plan for name, plan in EVERY.items() if "rounded" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("window", [(3, 3), (5, 2)])
@pytest.mark.parametrize("groups", [1, 4])
def test_every_formulation(groups: int, window: tuple[int, int]) -> None:
    x, kernel = arrays((2, 7, 6, 4), (*window, 4 // groups, 8))
    options: Case = {"strides": (1, 1), "padding": ((2, 1), (0, 2)), "groups": groups}
    plans = {name: plan for name, plan in EVERY.items() if ("depthwise" in plan) == (groups > 1)}
    functions = {name: partial(conv2d, plan=plan, **options) for name, plan in plans.items()}
    functions[""] = partial(library, **options)
    results = jax.jit(lambda *both: {name: value_and_both_gradients(f, *both) for name, f in functions.items()})
    got = results(x, kernel)
    for name in plans:
        close(got[name], got[""])


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_large_images_a_few_at_a_time(batch: int) -> None:
    shape = (batch, int(LARGE**0.5) + 1, int(LARGE**0.5) + 1, 1)
    x, kernel = arrays(shape, (11, 11, 1, 2))
    options: Case = {"strides": (32, 32), "padding": ((2, 1), (0, 2)), "groups": 1}
    plan = ConvolutionPlan("library", "library", "few_images", "loop")
    ours, theirs = (
        jax.jit(partial(value_and_both_gradients, partial(function, **options)))(x, kernel)
        for function in (partial(conv2d, plan=plan), library)
    )
    close(ours, theirs)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(0, 4, 4, 4), (1, 2, 1, 4)])
def test_no_images_and_images_without_outputs_are_convolved_to_nothing(shape: tuple[int, ...], groups: int) -> None:
    x, kernel = arrays(shape, (3, 3, 4 // groups, 8))
    padding = 1 if not shape[0] else 0
    options: Case = {"strides": (2, 1), "padding": [(padding, padding)] * 2, "groups": groups}
    ours, theirs = (partial(value_and_both_gradients, partial(one, **options)) for one in (conv2d, library))
    close(jax.jit(ours)(x, kernel), theirs(x, kernel))
    several = [jnp.stack([array] * 3) for array in (x, kernel)]
    close(jax.vmap(ours)(*several), jax.vmap(theirs)(*several))


@pytest.mark.parametrize("strides", [(2, 3), (4, 1), (3, 5)])
def test_strided_images_in_blocks_and_by_phases(strides: tuple[int, int]) -> None:
    x, kernel = arrays((2, 13, 12, 3), (5, 4, 3, 2))
    plan = ConvolutionPlan("blocked", "phases", "rows", "loop")
    options: Case = {"strides": strides, "padding": ((2, 1), (0, 2)), "groups": 1}
    ours, theirs = (
        jax.jit(partial(value_and_both_gradients, partial(function, **options)))(x, kernel)
        for function in (partial(conv2d, plan=plan), library)
    )
    close(ours, theirs)


@pytest.mark.parametrize(
    ("size", "inputs", "window", "stride", "expected"),
    [
        (32, 3, 3, 1, ("folded", "library", "folded")),
        (32, 64, 3, 1, ("library", "library", "rows")),  # many pixels along an axis for 64 channels
        (16, 128, 3, 1, ("winograd", "winograd", "winograd")),
        (4, 256, 3, 1, ("winograd", "winograd", "winograd")),
        (4, 512, 3, 1, ("winograd_small", "winograd_small", "winograd_small")),  # few pixels for so large a kernel
        (2, 512, 3, 1, ("im2col", "columns", "transposed")),  # a window wider than the image
        (16, 128, 3, 2, ("library", "columns", "shift")),
        (32, 64, 3, 2, ("library", "phases", "rows")),
        (32, 64, 1, 2, ("im2col", "columns", "xcols")),
        (32, 64, 1, 1, ("im2col", "im2col", "xcols")),
    ],
)
def test_the_plan_of_a_resnets_layers(
    size: int, inputs: int, window: int, stride: int, expected: tuple[str, str, str]
) -> None:
    geometry = Geometry((size, size), (window, window), (stride, stride), ((window // 2,) * 2,) * 2, 1)
    case = GeometryCase(geometry, 16, inputs, stride * inputs)
    assert chosen_plan(cpu_plan(case), case) == (*expected, "loop")


@pytest.mark.parametrize("name", FITS)
def test_a_formulation_that_cannot_compute_it_is_refused(name: str) -> None:
    x, kernel = arrays((2, 4, 4, 4), (3, 3, 2, 4))
    places = (name in FORWARD, name in INPUT_GRADIENT, name in KERNEL_GRADIENT)
    plan = ConvolutionPlan._make([*(name if place else "library" for place in places), "loop"])
    with pytest.raises(ValueError, match=f"'{name}' cannot compute"):
        value_and_both_gradients(partial(conv2d, padding="SAME", groups=2, plan=plan), x, kernel)


def both(function: Callable[..., Any], axes: list[Any], arguments: list[jax.Array], **options: Any) -> None:
    """Compares `function(convolution)` mapped over the nested `axes`, ours with the library's."""
    functions = []
    for convolution in (conv2d, library):
        mapped = partial(function, partial(convolution, **options))
        for axis in reversed(axes):
            mapped = jax.vmap(mapped, axis)
        functions.append(mapped)
    close(*jax.jit(lambda *arguments: [mapped(*arguments) for mapped in functions])(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "groups", "inputs"),
    [
        *(((0, 0), *channels) for channels in ((1, 3), (2, 4), (4, 4))),
        *(((0, None), *channels) for channels in ((1, 3), (2, 4), (4, 4))),
        *(((None, 0), *channels) for channels in ((1, 3), (2, 4), (4, 4))),
        ((1, 3), 2, 4),
    ],
)
def test_client_axis_on_either_or_both(axes: tuple[Any, Any], groups: int, inputs: int) -> None:
    shapes = [[2, 5, 4, inputs], [3, 3, inputs // groups, 4]]
    for shape, axis in zip(shapes, axes, strict=True):
        if axis is not None:
            shape.insert(axis, 3)
    options = {"strides": (2, 1), "padding": "SAME", "groups": groups}
    both(value_and_both_gradients, [axes], arrays(*map(tuple, shapes)), **options)


@pytest.mark.parametrize("inner", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("outer", [(0, 0), (0, None), (None, 0)])
def test_clients_times_seeds(outer: tuple[Any, Any], inner: tuple[Any, Any]) -> None:
    shapes = [
        ((2,) if outer[i] == 0 else ()) + ((3,) if inner[i] == 0 else ()) + shape
        for i, shape in enumerate([(2, 4, 4, 2), (3, 3, 2, 3)])
    ]
    options = {"strides": (1, 1), "padding": "SAME", "groups": 1}
    both(value_and_both_gradients, [outer, inner], arrays(*shapes), **options)


def test_forward_mode_and_second_derivatives() -> None:
    options = {"strides": (2, 2), "padding": "SAME", "groups": 1}
    x, kernel = arrays((2, 5, 5, 2), (3, 3, 2, 3))

    def hessian_vector(convolution: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array) -> Any:
        gradient = jax.grad(lambda *both: (convolution(*both) ** 3).sum(), (0, 1))
        forward_over_reverse = jax.jvp(gradient, (x, kernel), (jnp.cos(x), jnp.sin(kernel)))
        reverse_over_reverse = jax.vjp(gradient, x, kernel)[1]((jnp.cos(x), jnp.sin(kernel)))
        return forward_over_reverse, reverse_over_reverse

    both(hessian_vector, [], [x, kernel], **options)


def train(convolution: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Three gradient steps in a loop."""

    def step(kernel: jax.Array, batch: jax.Array) -> tuple[jax.Array, None]:
        return kernel - 0.01 * jax.grad(lambda k: (convolution(batch, k) ** 2).mean())(kernel), None

    return lax.scan(step, kernel, x)[0]


@pytest.mark.parametrize("axes", [[], [(0, 0)]])
def test_training_inside_scan(axes: list[Any]) -> None:
    clients = (2,) if axes else ()
    x, kernel = arrays((*clients, 3, 2, 6, 6, 2), (*clients, 3, 3, 2, 3))
    both(train, axes, [x, kernel], strides=(1, 1), padding="SAME", groups=1)


def test_mapped_training_equals_one_client_at_a_time() -> None:
    x, kernel = arrays((3, 2, 2, 6, 6, 2), (3, 3, 3, 2, 3))
    one = partial(train, partial(conv2d, padding="SAME"))
    mapped = jax.jit(lambda *both: lax.map(lambda pair: one(*pair), both))(x, kernel)
    close(jax.jit(jax.vmap(one))(x, kernel), mapped)


def test_many_clients() -> None:
    clients = UNROLLED_CLIENTS + 1
    x, kernel = arrays((clients, 2, 4, 4, 2), (clients, 3, 3, 2, 3))
    both(value_and_both_gradients, [(0, 0)], [x, kernel], strides=(1, 1), padding="SAME", groups=1)


def test_shard_map_over_clients() -> None:
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    part = jax.sharding.PartitionSpec("clients")
    x, kernel = arrays((2, 2, 4, 4, 2), (3, 3, 2, 3))

    def one(x: jax.Array, kernel: jax.Array) -> Any:
        def loss(kernel: jax.Array) -> jax.Array:
            return lax.psum((jax.vmap(partial(conv2d, padding="SAME"), (0, None))(x, kernel) ** 2).sum(), "clients")

        return jax.grad(loss)(kernel)

    sharded = jax.jit(jax.shard_map(one, mesh=mesh, in_specs=(part, jax.P()), out_specs=jax.P()))
    expected = jax.grad(
        lambda k: (library(x.reshape(-1, 4, 4, 2), k, strides=(1, 1), padding="SAME", groups=1) ** 2).sum()
    )(kernel)
    close(sharded(x, kernel), expected)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 4])
def test_bfloat16(groups: int) -> None:
    x, kernel = arrays((2, 6, 6, 4), (3, 3, 4 // groups, 8))
    options: Case = {"strides": (1, 1), "padding": "SAME", "groups": groups}
    got = jax.jit(partial(value_and_both_gradients, partial(conv2d, **options)))(
        x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    )
    expected = jax.jit(partial(value_and_both_gradients, partial(library, **options)))(x, kernel)
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {jnp.dtype(jnp.bfloat16)}
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        error = jnp.linalg.norm(ours.astype(jnp.float32) - theirs) / jnp.linalg.norm(theirs)
        assert error < 0.03, error


@pytest.mark.slow
def test_without_jit() -> None:
    x, kernel = arrays((2, 4, 4, 2), (3, 3, 2, 3))
    with jax.disable_jit():
        got = conv2d(x, kernel, padding="SAME")
    close(got, conv2d(x, kernel, padding="SAME"))


def test_shapes_and_dtypes_that_do_not_fit() -> None:
    x, kernel = arrays((2, 4, 4, 2), (3, 3, 3, 3))
    with pytest.raises(ValueError, match=r"groups=1; expected x"):
        conv2d(x, kernel, padding="SAME")
    with pytest.raises(ValueError, match="one dtype"):
        conv2d(x, kernel[:, :, :2].astype(jnp.bfloat16), padding="SAME")
    with pytest.raises(ValueError, match="one entry per axis"):
        conv2d(x, kernel[:, :, :2], padding=[1, 2, 3])


@pytest.mark.parametrize("options", [{}, {"strides": 2, "padding": "VALID"}, {"feature_group_count": 2}])
def test_conv_module_is_flaxs(options: dict[str, Any]) -> None:
    (x,) = arrays((2, 6, 6, 4))
    ours, theirs = Conv(6, (3, 3), **options), nn.Conv(6, (3, 3), **options)
    variables = ours.init(jax.random.key(0), x)
    chex.assert_trees_all_equal_shapes_and_dtypes(variables, theirs.init(jax.random.key(1), x))
    close(ours.apply(variables, x), theirs.apply(variables, x))
