"""Products of operands rounded to bfloat16: how far they are from float32's, and where they are used."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.nn import conv2d
from fdgjax.nn.formulations import library_forward
from fdgjax.nn.geometry import Case, Geometry
from fdgjax.nn.lowerings import FITS, FORWARD, INPUT_GRADIENT, KERNEL_GRADIENT, bfloat16_plan, cpu_plan
from fdgjax.nn.rounded import rounded_products
from fdgjax.utils.processor import AMX, instructions

GEOMETRIES = [
    Geometry((6, 5), (3, 3), (1, 1), ((1, 1), (1, 1)), 1),
    Geometry((7, 6), (5, 3), (1, 1), ((2, 1), (0, 1)), 1),
    Geometry((7, 8), (3, 2), (2, 3), ((1, 0), (0, 1)), 1),
    Geometry((5, 4), (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
    Geometry((6, 6), (1, 1), (2, 2), ((0, 0), (0, 0)), 1),
]
MAPS = {"forward": FORWARD, "input_gradient": INPUT_GRADIENT, "kernel_gradient": KERNEL_GRADIENT}


def exact(name: str, a: jax.Array, b: jax.Array, geometry: Geometry, shapes: tuple[jax.Array, jax.Array]) -> jax.Array:
    """One of the three maps in float32, by autodiff of XLA's convolution."""
    x, kernel = shapes
    if name == "forward":
        return library_forward(a, b, geometry)
    if name == "input_gradient":
        return jax.vjp(lambda x: library_forward(x, b, geometry), x)[1](a)[0]
    return jax.vjp(lambda kernel: library_forward(a, kernel, geometry), kernel)[1](b)[0]


@pytest.mark.slow
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_only_operands_are_rounded(geometry: Geometry) -> None:
    """Each operand is off by at most 2^-8 of itself, so that a result is off by 2^-7 (and 2^-16) of the same sum over
    absolute values; and operands that bfloat16 has exactly give float32's results, which a sum in bfloat16 would not:
    the whole numbers here add up to thousands, and bfloat16 has all of them only up to 256."""
    rng = np.random.default_rng(0)
    case = Case(geometry, 3, 5, 4)
    sizes = {"x": (3, *geometry.size, 5), "k": (*geometry.window, 5, 4), "g": (3, *geometry.out(), 4)}
    normal = {letter: jnp.asarray(rng.normal(size=size), jnp.float32) for letter, size in sizes.items()}
    whole = {letter: jnp.asarray(rng.integers(-99, 100, size=size), jnp.float32) for letter, size in sizes.items()}
    shapes, pairs = (normal["x"], normal["k"]), (("x", "k"), ("g", "k"), ("x", "g"))
    for (name, formulations), (first, second) in zip(MAPS.items(), pairs, strict=True):
        expected, size, exactly = (
            jax.jit(exact, static_argnums=(0, 3))(name, arrays[first], arrays[second], geometry, shapes)
            for arrays in (normal, jax.tree.map(jnp.abs, normal), whole)
        )
        for key in (key for key in formulations if "rounded" in key and FITS[key](case)):
            compute = jax.jit(formulations[key], static_argnums=2)
            got = compute(normal[first], normal[second], geometry)
            assert got.dtype == jnp.float32
            assert jnp.all(jnp.abs(got - expected) <= (2**-7 + 2**-15) * size), (name, key)
            assert jnp.any(got != expected), (name, key)
            np.testing.assert_array_equal(compute(whole[first], whole[second], geometry), exactly, f"{name} {key}")


def test_within_rounded_products_all_derivatives_are_rounded_and_nothing_is_after() -> None:
    x, kernel = jnp.ones((2, 4, 4, 3)), jnp.ones((3, 3, 3, 4))

    def loss(x: jax.Array, kernel: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(conv2d(x, kernel, padding="SAME").reshape(2, -1) @ weights))

    def rounded(*arguments: jax.Array) -> jax.Array:
        with rounded_products():
            return loss(*arguments)

    arguments = x, kernel, jnp.ones((64, 2))
    inside, outside = (str(jax.make_jaxpr(jax.grad(f, argnums=(0, 1, 2)))(*arguments)) for f in (rounded, loss))
    names = "fdgjax_conv", "fdgjax_input_gradient", "fdgjax_kernel_gradient"
    assert all(name in inside for name in names)
    assert inside.count("plan=bfloat16") == 3
    assert outside.count("plan=None") == 3
    assert inside.count("precision=BF16_BF16_F32") == inside.count("dot_general") == 3
    assert "BF16" not in outside
    assert "plan=bfloat16" not in outside


CASES = [
    Case(Geometry((16, 16), (3, 3), (1, 1), ((1, 1), (1, 1)), 1), 64, 32, 64),
    Case(Geometry((8, 8), (5, 5), (1, 1), ((2, 2), (2, 2)), 1), 64, 64, 16),
    Case(Geometry((8, 8), (1, 1), (2, 2), ((0, 0), (0, 0)), 1), 4, 64, 128),
    Case(Geometry((8, 8), (1, 1), (1, 1), ((0, 0), (0, 0)), 1), 4, 64, 32),
    Case(Geometry((32, 32), (3, 3), (1, 1), ((1, 1), (1, 1)), 1), 4, 3, 32),
    Case(Geometry((8, 8), (3, 3), (1, 1), ((1, 1), (1, 1)), 8), 4, 8, 8),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plans_of_processors_with_and_without_such_products(case: Case) -> None:
    assert bfloat16_plan(case, frozenset({"avx512_bf16"})) == cpu_plan(case)
    assert all(f not in FITS or FITS[f](case) for f in bfloat16_plan(case, frozenset({AMX}))[:3])


def test_the_instructions_of_a_processor(tmp_path: Path) -> None:
    source = tmp_path / "cpuinfo"
    source.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 sse\n\nprocessor\t: 1\nflags\t\t: other\n")
    assert instructions(source) == {"fpu", "avx512_bf16", "sse"}
    assert instructions(tmp_path / "none") == frozenset()
