"""What the layers are on a GPU, read from programs that are lowered for one; none is needed."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.nn import BatchNorm, ConvTranspose, Dense, avg_pool, conv2d, max_pool
from fdgjax.nn.lowerings import PLANS
from tests.nn.test_convolution import CASES

CLIENTS = 3


def lowered(function: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """The program for CUDA of a function's value and gradients, for clients that run together."""
    stacked = [jax.ShapeDtypeStruct((CLIENTS, *shape), np.float32) for shape in shapes]

    def step(*arrays: jax.Array) -> Any:
        y, pull = jax.vjp(function, *arrays)
        return y, pull(jnp.sin(y))

    return str(jax.jit(jax.vmap(step)).trace(*stacked).lower(lowering_platforms=("cuda",)).as_text())


@functools.cache
def convolution(case: str, plan: str | None) -> str:
    options, *shapes = CASES[case]
    return lowered(functools.partial(conv2d, plan=plan, **options), *shapes)


def count(text: str) -> int:
    return text.count("stablehlo.convolution")


@pytest.mark.parametrize("case", CASES)
def test_each_plan_is_what_it_says(case: str) -> None:
    assert convolution(case, None) == convolution(case, "cuda")
    assert count(convolution(case, "library")) == 3, "forward, input gradient and kernel gradient, of all clients"
    assert count(convolution(case, "im2col")) == 0
    options, _, kernel = CASES[case]
    assert count(convolution(case, "cuda")) == (0 if options["groups"] == 1 else 3)
    minimal = options["strides"] == (1, 1) and max(kernel[:2]) <= 5 and options["groups"] == 1
    assert count(convolution(case, "winograd")) == (0 if minimal else 3)
    assert all("stablehlo.while" not in convolution(case, plan) for plan in ("library", "im2col", "winograd"))


def test_no_plan_is_forgotten() -> None:
    assert set(PLANS) == {"cpu", "cuda", "library", "im2col", "winograd", "bfloat16"}


@pytest.mark.parametrize("name", ["dense", "transposed", "max_pool", "avg_pool", "batch_norm"])
def test_every_other_layer_is_lowered_without_a_convolution_a_loop_or_a_call(name: str) -> None:
    x = (2, 4, 4, 3)
    norm = BatchNorm(use_running_average=False)
    function: Callable[..., Any] = {
        "dense": lambda x: Dense(2).apply({"params": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}}, x),
        "transposed": lambda x: ConvTranspose(2, (2, 2)).apply(
            {"params": {"kernel": jnp.ones((2, 2, 3, 2)), "bias": jnp.ones(2)}}, x
        ),
        "max_pool": lambda x: max_pool(x, 2),
        "avg_pool": lambda x: avg_pool(x, 2),
        "batch_norm": lambda x: norm.init_with_output(jax.random.key(0), [x])[0][0],
    }[name]
    text = lowered(function, x)
    for word in ("convolution", "while", "custom_call"):
        assert f"stablehlo.{word}" not in text, word
