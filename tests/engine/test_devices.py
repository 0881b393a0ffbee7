"""Several devices are an execution choice, too: the same numbers, and one program for all rounds."""

import functools
import math
import re
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Execution
from fdgjax.engine import init_state
from fdgjax.engine.clients import everywhere, jit, over_clients
from fdgjax.engine.devices import split_cpu
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.toys import CLIENTS, KINDS, Case, build, close, make_plan, poison, shared_case, tolerance, toy_federation

WHOLE = make_plan("map", drop_nonfinite=True)


def placed(case: Case, devices: int) -> tuple[Any, Any]:
    """A fresh state and the data, as a run has them: whole on every device."""
    return jax.device_put((case.start(), case.federation), everywhere(Execution(devices=devices)))


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=20)
@given(
    clients=st.integers(1, 7),
    devices=st.integers(1, 4),
    axis=st.sampled_from(["auto", "map", "vmap", "chunk"]),
)
def test_each_client_is_run_once_and_alone(clients: int, devices: int, axis: str) -> None:
    def one_client(shared: jax.Array, row: dict[str, jax.Array]) -> dict[str, jax.Array]:
        # As long as the client's number, so that devices are done at different times.
        total = jax.lax.fori_loop(0, row["n"], lambda i, total: total + i, jnp.int32(0))
        return {"gradient": jax.grad(lambda w: jnp.sum(w * row["x"]))(shared), "total": total}

    execution = Execution(axis, 2, devices)
    x = np.arange(3.0 * clients, dtype=np.float32).reshape(clients, 3)
    n = np.arange(clients, dtype=np.int32)
    rows = {"x": jnp.asarray(x), "n": jnp.asarray(n)}
    got = jit(over_clients(one_client, execution), execution)(jnp.ones(3), rows)
    close(got, {"gradient": x, "total": n * (n - 1) // 2})
    if axis == "map":
        # Assigned to devices by their steps, as many to a device as there is room for, each gives the same bits.
        execution = execution._replace(slots=-(-clients // devices) + 1)
        by_steps = over_clients(one_client, execution, jnp.asarray(n))
        chex.assert_trees_all_equal(jit(by_steps, execution)(jnp.ones(3), rows), got)


THREE = WHOLE._replace(execution=Execution("map", 2, 3, slots=2))
"""Four clients do not come out even on three devices, and are assigned to them by their steps."""


@functools.cache
def program(name: str) -> Any:
    """The round on three devices, compiled ahead: it takes exactly what it was compiled for, at that place."""
    case = shared_case(name, plan=THREE)
    return case.round.lower(*placed(case, 3)).compile()


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(KINDS, ("fedavg", "fdse")))
def test_three_devices_equal_one(name: str) -> None:
    assert CLIENTS % 3
    state, federation = placed(shared_case(name, plan=THREE), 3)
    for _ in range(3):
        state, _ = program(name)(state, federation)
    close(state, one_device(name), **tolerance(name))


def one_device(name: str) -> Any:
    return shared_case(name, plan=WHOLE).advance(3)


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["vmap", "chunk"])
def test_each_device_runs_its_clients_by_any_axis(axis: str) -> None:
    plan = WHOLE._replace(execution=Execution(axis, 2, 2))
    close(shared_case("fedavg", plan=plan).advance(3), one_device("fedavg"))


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "slots"), [(4, 0), (2, 2)])
def test_fewer_clients_a_round_than_all(devices: int, slots: int) -> None:
    drawn = make_plan("map", drop_last=True, per_round=2)
    one, several = (Execution("map", 2, 1), Execution("map", 2, devices, slots=slots))
    wanted, got = (shared_case("local", plan=drawn._replace(execution=how)) for how in (one, several))
    close(got.advance(3), wanted.advance(3))


@pytest.mark.slow
def test_a_client_left_out_is_left_out_on_its_device() -> None:
    three = shared_case("fedavg", plan=THREE)
    one = shared_case("fedavg", plan=WHOLE)
    # The last but one client is also the first device's stand-in for a missing one.
    for victim in (0, 3):
        federation = poison(one.federation, victim)
        (wanted, info), (state, same) = (case.round(case.start(), federation) for case in (one, three))
        close(state, wanted)
        np.testing.assert_array_equal(same.finite, info.finite)
        assert not info.finite[victim]


@pytest.mark.slow
def test_a_rounds_result_enters_the_same_program_again() -> None:
    # Every kind's does above, or the program would raise.
    name = "local"
    case = shared_case(name, plan=THREE)
    state, federation = placed(case, 3)
    program(name)
    traced = len(case.traces)
    for _ in range(3):
        types = jax.tree.map(lambda leaf: (jax.typeof(leaf), leaf.sharding), state)
        state, _ = program(name)(state, federation)
        assert jax.tree.map(lambda leaf: (jax.typeof(leaf), leaf.sharding), state) == types
    assert len(case.traces) == traced
    chex.assert_trees_all_equal(jax.device_get(state), jax.device_get(case.advance(3)))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_no_device_waits_for_another_inside_a_loop(name: str) -> None:
    # A loop over clients that lie on several devices would fetch one of them, or all, in each of its steps.
    lines = program(name).as_text().splitlines()
    meetings = [line for line in lines if re.search(r"= .*(all-|collective-|reduce-scatter)\S*\(", line)]
    assert meetings, "the devices have to meet somewhere"
    # A rule may iterate over a number for each pair of clients, those that stand in for missing ones included.
    rows = CLIENTS + -CLIENTS % THREE.execution.devices
    assert not [line for line in meetings if "/while/" in line and largest(line) > rows**2]


def largest(line: str) -> int:
    """The numbers of the largest array in a line of a program."""
    shapes = re.findall(r"\w+\[([\d,]*)\]", line.partition("(")[0])
    return max(math.prod(int(side) for side in shape.split(",") if side) for shape in shapes)


@pytest.mark.slow
def test_fixed_embeddings_are_those_of_one_device() -> None:
    federation = toy_federation()
    states = []
    for devices in (1, 3):
        method = build("hfedf", federation, "dense", devices, embeddings="fixed")
        init = jit(functools.partial(init_state, method), Execution(devices=devices))
        states.append(init(federation, 0))
    close(*states)


def test_more_devices_than_there_are_is_one_line() -> None:
    with pytest.raises(UserError, match=r"config.devices got 99; expected at most \d+, as many as JAX sees") as error:
        over_clients(lambda shared, row: row, Execution(devices=99))
    assert "\n" not in str(error.value)


def test_a_cpu_is_never_split_into_fewer_devices_than_jax_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = jax.config.values["jax_num_cpu_devices"], []
    monkeypatch.setattr(jax.config, "update", lambda key, value: seen.append((key, value)))
    for devices in (before - 1, before + 2):
        split_cpu(devices)
    assert seen == [("jax_num_cpu_devices", before), ("jax_num_cpu_devices", before + 2)]
