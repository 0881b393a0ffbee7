"""Where a batch's pixels come from changes nothing but, in another program, rounding."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.federation import Federation, pool, stack_seeds
from fdgjax.data.streaming import Streamed
from fdgjax.engine import Execution, State, compile_init, compile_round
from fdgjax.engine.clients import everywhere
from fdgjax.evaluation import compile_representation
from fdgjax.evaluation.linear_probe import LAYERS
from fdgjax.run.memory_check import tree_bytes
from tests.toy_models import tiny_model
from tests.toys import FULL_LENGTHS, build, close, make_plan, tolerance, toy_federation

pytestmark = pytest.mark.slow


@functools.cache
def federation(streaming: bool) -> Federation:
    """The toy federation, its images on the device or on the host."""
    one = toy_federation(FULL_LENGTHS)
    return one._replace(inputs=Streamed(np.asarray(one.inputs))) if streaming else one


@pytest.mark.parametrize(
    ("name", "axis", "devices", "seeds"),
    [
        pytest.param("fedavg", "map", 1, 2, id="two-seeds"),
        pytest.param("central", "vmap", 1, 1, id="pooled"),
        pytest.param("uap", "map", 2, 1, id="two-devices-and-a-server-that-trains"),
        pytest.param("fedsimclr", "vmap", 1, 1, id="random-views"),
    ],
)
def test_a_streaming_round_is_the_same_round(name: str, axis: str, devices: int, seeds: int) -> None:
    execution = Execution(axis, 2, devices, seed_axis=axis)
    method, plan = (
        build(name, toy_federation(FULL_LENGTHS), "dense", devices),
        make_plan(axis)._replace(execution=execution),
    )
    ends = []
    for streaming in (False, True):
        data = federation(streaming)
        data = stack_seeds([pool(data) if method.pooled else data] * seeds)
        data = jax.device_put(data, everywhere(execution))
        numbers = jnp.arange(4, 4 + seeds, dtype=jnp.uint32)
        state = compile_init(method, execution)(numbers if seeds > 1 else numbers[0], data)
        compiled: Any = compile_round(method, plan)
        state, _ = compiled(state, data)
        ends.append(jax.device_get(compiled(state, data)))
        assert compiled._cache_size() == 1, "compiled again"
    close(*ends, **tolerance(name))


def test_what_a_probe_sees_is_the_same() -> None:
    method, model = build("fedsimclr", toy_federation(FULL_LENGTHS)), tiny_model(method="fedsimclr")
    look = compile_representation(method, model, LAYERS["features"], batch_size=4, execution=Execution("map"))
    state: State = compile_init(method, Execution())(jnp.uint32(0), toy_federation(FULL_LENGTHS))
    close(*(look(state, federation(streaming)) for streaming in (False, True)))


def test_no_image_is_an_argument_of_the_program() -> None:
    method = build("fedavg", toy_federation(FULL_LENGTHS))
    state: State = compile_init(method, Execution())(jnp.uint32(0), federation(True))
    program = compile_round(method, make_plan()).lower(state, federation(True)).compile()
    analysis: Any = program.memory_analysis()
    assert analysis.argument_size_in_bytes <= tree_bytes(state) + tree_bytes(federation(True))
    images = np.asarray(toy_federation(FULL_LENGTHS).inputs)
    assert tree_bytes(federation(False)) - tree_bytes(federation(True)) == images.nbytes
