"""What an accelerator runs, read from the program that is lowered for one; none is needed.

Where there is one, and a CPU beside it (`JAX_PLATFORMS=cuda,cpu pytest -m slow tests/engine/test_accelerator.py`), what
it computes, too.

Under `vmap` a round is a program that never asks the host: no loop is as long as the data say, nothing is sent or
received, no host function is called. (XLA:GPU copies the condition of a loop whose length it does not know to the host
in every turn.) Nor does it leave the order of a sum to the device, with few exceptions: adding up floats at places that
repeat, which XLA:GPU does in the order in which they come.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.stages import Wrapped

from fdgjax.data.federation import pool
from fdgjax.engine import Execution, RoundPlan, compile_round, init_state
from fdgjax.engine.loops import dynamic_loop, masked_loop
from fdgjax.evaluation import compile_evaluation
from fdgjax.evaluation.error_sums import error_sums
from fdgjax.evaluation.tally import EvaluationSettings, tally
from fdgjax.methods import METHODS
from tests.marks import mostly_slow
from tests.toy_models import tiny_model
from tests.toys import DOMAINS, are_exact, close, lengths_for, make_plan, shared_case, shared_method, toy_federation

OTHER = jax.devices()[0] if jax.default_backend() != "cpu" else jax.devices()[1]
"""An accelerator, or for want of one a CPU's second device."""
QUICK = ("fdse", "fedavg", "hfedf", "semifl")
SEARCHES = {
    "fdse": "min-norm points, three times a round",
    "fedomg": "a penalty whose min-norm point has the right length",
    "mixup": "Beta-distributed shares, drawn by rejection",
    "semifl": "Beta-distributed shares, drawn by rejection",
}
"""Methods with loops of their own that end when something is found, after a turn or a few."""
UNORDERED = {
    "afl": "what clients add to their own entries of the mixture, each once",
    "cbafed": "counts, which are whole numbers",
    "fedclip": "the gradient of the embeddings of a minibatch's classes",
    "fedsr": "the gradient of the references of a minibatch's classes",
    "hfedf": "the gradient of the participants' embeddings, each once",
    "mmd": "the gradient of a diagonal",
    "pfedhn": "the gradient of the participants' embeddings, each once",
    "stablefdg": "the gradient of samples that are seen several times",
    "uap": "the gradient of the classifier's weights of a minibatch's classes",
}
"""Methods whose rounds add floats at places of an array that the program does not know to differ."""
TALKING = ("send", "recv", "infeed", "outfeed")
COUNTER = ["stablehlo.compare", "stablehlo.constant", "stablehlo.return"]
"""The condition of a loop that compares its counter with a number of the program."""


class Seen(NamedTuple):
    """A program: for each loop whether it compares an argument with a constant, and nothing else; what asks the host;
    and what adds floats at places that may repeat."""

    counted: list[bool]
    asking: list[str]
    unordered: list[str]


def seen(program: Wrapped, *arguments: Any, platform: str = "cuda") -> Seen:
    """What the program is that is lowered for a platform."""
    module = program.trace(*arguments).lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    counted, asking, unordered = [], [], []
    for one in operations(module.operation):
        target = str(one.attributes["call_target_name"]) if one.name == "stablehlo.custom_call" else ""
        if "callback" in target or one.name.removeprefix("stablehlo.") in TALKING:
            asking.append(target or one.name)
        if one.name == "stablehlo.while":
            condition = one.regions[0].blocks[0].operations
            counted.append(sorted(inner.operation.name for inner in condition) == COUNTER)
        if one.name == "stablehlo.scatter" and may_repeat(one):
            unordered.append(str(one.location))
    return Seen(counted, asking, unordered)


def may_repeat(scatter: Any) -> bool:
    """Whether a scatter adds floats at several places of one array that the program does not say to differ."""
    target, places = scatter.results[0].type, scatter.operands[1].type
    begins = [inner.operation.name for inner in scatter.regions[0].blocks[0].operations]
    numbers = str(scatter.attributes["scatter_dimension_numbers"])
    batched = {int(axis) for axis in re.findall(r"\d+", field(numbers, "scatter_indices_batching_dims"))}
    vector = int(field(numbers, "index_vector_dim") or len(places.shape))
    together = [size for axis, size in enumerate(places.shape) if axis not in batched | {vector}]
    unique = "true" in str(scatter.attributes["unique_indices"])
    return not unique and begins[0] == "stablehlo.add" and "f32" in str(target) and math.prod(together) > 1


def field(attribute: str, name: str) -> str:
    """The text of a field of a printed attribute, empty if it is absent."""
    found = re.search(rf"\b{name} = (\[[^]]*\]|\d+)", attribute)
    return found[1] if found else ""


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
    assert bool(found.unordered) == (name in UNORDERED)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS) if OTHER.platform != "cpu" else ["fedavg"])
def test_another_device_computes_the_same(name: str) -> None:
    case = shared_case(name, plan=make_plan("vmap"))
    ends = []
    for device in (jax.devices("cpu")[0], OTHER):
        with jax.default_matmul_precision("float32"):
            state = case.advance(2, federation=jax.device_put(case.federation, device))
        assert all(leaf.devices() == {device} for leaf in jax.tree.leaves(state))
        ends.append(jax.tree.leaves(jax.device_get(state)))
    for one, other in zip(*ends, strict=True):
        # Of the largest: a bias before BatchNorm and the like is nothing but rounding.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-3 * np.max(np.abs(one), initial=1e-3))


@pytest.mark.slow
def test_a_client_alone_takes_its_own_steps() -> None:
    """Also: the test above would see a loop whose length is data."""
    assert not all(round_of("fedavg", make_plan("map")).counted)


@pytest.mark.parametrize("counting", [tally, error_sums])
def test_an_evaluation_adds_up_in_one_order(counting: Callable[..., Any]) -> None:
    how = EvaluationSettings(batch_size=4, adapt_batch_size=4, execution=Execution("vmap"))
    method, federation = shared_method("fedavg"), toy_federation()
    if counting is error_sums:
        federation = federation._replace(labels=federation.labels.astype(np.float32))
    observe = compile_evaluation(method, tiny_model(), how, domains=DOMAINS, counting=counting)
    state = jax.eval_shape(functools.partial(init_state, method), federation, 0)
    assert not seen(observe, state, federation).unordered


def test_a_sum_in_any_order_would_be_seen() -> None:
    values, groups = jax.ShapeDtypeStruct((8,), np.float32), jax.ShapeDtypeStruct((8,), np.int32)
    scattered = jax.jit(lambda values, groups: jnp.zeros(3).at[groups].add(values))
    assert seen(scattered, values, groups).unordered


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
    jax.eval_shape(compile_round(method._replace(aggregate=aggregate), make_plan("vmap")), state, federation)
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
