"""What an accelerator runs, read from the program that is lowered for one; none is needed.

Under `vmap` a round is a program that never asks the host: no loop is as long as the data say, nothing is sent or
received, no host function is called. (XLA:GPU copies the condition of a loop whose length it does not know to the host
in every turn.)
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.stages import Wrapped

from fdgjax.data.federation import pool
from fdgjax.engine import RoundPlan, compile_round, init_state
from fdgjax.engine.loops import dynamic_loop, masked_loop
from fdgjax.methods import METHODS
from tests.marks import mostly_slow
from tests.toys import are_exact, close, lengths_for, make_plan, shared_case, shared_method, toy_federation

QUICK = ("fdse", "fedavg", "hfedf", "semifl")
SEARCHES = {
    "fdse": "min-norm points, three times a round",
    "fedomg": "a penalty whose min-norm point has the right length",
    "mixup": "Beta-distributed shares, drawn by rejection",
    "semifl": "Beta-distributed shares, drawn by rejection",
}
"""Methods with loops of their own that end when something is found, after a turn or a few."""
TALKING = ("send", "recv", "infeed", "outfeed")
COUNTER = ["stablehlo.compare", "stablehlo.constant", "stablehlo.return"]
"""The condition of a loop that compares its counter with a number of the program."""


class Seen(NamedTuple):
    """A program: for each loop whether it compares an argument with a constant, and nothing else; and what asks the
    host."""

    counted: list[bool]
    asking: list[str]


def seen(program: Wrapped, *arguments: Any, platform: str = "cuda") -> Seen:
    """What the program is that is lowered for a platform."""
    module = program.trace(*arguments).lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    counted, asking = [], []
    for one in operations(module.operation):
        target = str(one.attributes["call_target_name"]) if one.name == "stablehlo.custom_call" else ""
        if "callback" in target or one.name.removeprefix("stablehlo.") in TALKING:
            asking.append(target or one.name)
        if one.name == "stablehlo.while":
            condition = one.regions[0].blocks[0].operations
            counted.append(sorted(inner.operation.name for inner in condition) == COUNTER)
    return Seen(counted, asking)


def operations(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from operations(inner.operation)


def round_of(name: str, plan: RoundPlan) -> Seen:
    method, federation = shared_method(name), toy_federation(lengths_for(name))
    federation = pool(federation) if method.pooled else federation
    state = jax.eval_shape(functools.partial(init_state, method), federation, 0)
    return seen(compile_round(method, plan), state, federation)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(sorted(METHODS), QUICK))
def test_a_round_never_asks_the_host(name: str) -> None:
    found = round_of(name, make_plan("vmap"))
    assert not found.asking
    assert any(found.counted), "no loop over minibatches was found"
    assert all(found.counted) == (name not in SEARCHES)


@pytest.mark.slow
def test_a_client_alone_takes_its_own_steps() -> None:
    """Also: the test above would see a loop whose length is data."""
    assert not all(round_of("fedavg", make_plan("map")).counted)


def test_a_question_to_the_host_would_be_seen() -> None:
    shape = jax.ShapeDtypeStruct((), np.float32)
    # JAX lowers a call of the host for the machine's own backend alone.
    asking = jax.jit(lambda x: jax.pure_callback(abs, shape, x))
    assert seen(asking, shape, platform=jax.default_backend()).asking


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "hfedf"])
def test_no_short_product_decides_an_aggregate(name: str) -> None:
    method, federation, exact = shared_method(name), toy_federation(lengths_for(name)), []

    def aggregate(*args: Any) -> Any:
        exact.append(are_exact(jax.make_jaxpr(method.aggregate)(*args)))
        return method.aggregate(*args)

    state = jax.eval_shape(functools.partial(init_state, method), federation, 0)
    compile_round(method._replace(aggregate=aggregate), make_plan("vmap")).eval_shape(state, federation)
    assert exact == [True]


@pytest.mark.slow
def test_steps_written_out_are_the_same_steps() -> None:
    plan = make_plan("vmap")
    unrolled = plan._replace(execution=plan.execution._replace(unroll=2))
    one, other = (shared_case("fedavg", plan=each) for each in (plan, unrolled))
    close(one.advance(2), other.advance(2))


@pytest.mark.parametrize("turns", [0, 2, 5])
def test_steps_beyond_a_clients_own_change_nothing(turns: int) -> None:
    step = lambda i, x: x * 2 + i  # noqa: E731
    ends = [
        jax.jit(lambda n, repeat=repeat: repeat(n, 5, step, np.int32(1)))(np.int32(turns))
        for repeat in (dynamic_loop, masked_loop, functools.partial(masked_loop, unroll=3))
    ]
    wanted = functools.reduce(lambda x, i: x * 2 + i, range(turns), 1)
    assert list(map(int, ends)) == [wanted] * 3


@pytest.mark.slow
def test_a_round_takes_nothing_from_the_host() -> None:
    """Whatever a round needs is on the device: it runs where implicit transfers are errors. (On a CPU reading a result
    is no copy and always allowed; on an accelerator the guard forbids that, too.)"""
    case = shared_case("fedavg", plan=make_plan("vmap"))
    state = jax.block_until_ready(case.advance(1))
    with jax.transfer_guard("disallow"):
        state, info = jax.block_until_ready(case.round(state, case.federation))
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
            case.round(state._replace(round=np.int32(1)), case.federation)
    assert np.isfinite(np.asarray(info.loss)).all()
