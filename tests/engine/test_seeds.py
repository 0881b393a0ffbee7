"""Several seeds in one program are as many separate runs, whatever the sizes of their splits."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.federation import Federation, pad_rows, pool, stack_seeds
from fdgjax.engine import Execution, RoundInfo, RoundPlan, State, compile_init, compile_round, each_seed, over_seeds
from fdgjax.evaluation import compile_evaluation
from fdgjax.evaluation.tally import EvaluationSettings
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.toy_models import tiny_model
from tests.toys import (
    CLIENTS,
    DOMAINS,
    KINDS,
    LENGTHS,
    POISON,
    build,
    by_numpy,
    close,
    copy,
    flat,
    lengths_for,
    make_plan,
    shared_case,
    shared_method,
    tolerance,
    toy_federation,
)

SEEDS = (3, 8)
AXES = [(seeds, clients) for seeds in ("map", "vmap") for clients in ("map", "vmap", "chunk")]
ALL_AT_ONCE = ("vmap", "vmap")
SEVERAL = {"fedavg": AXES, "hfedf": [("map", "map"), ALL_AT_ONCE]}
NESTED = [(name, axes) for number, name in enumerate(KINDS) for axes in SEVERAL.get(name, [AXES[number % len(AXES)]])]
"""One method of each kind: the first under every nesting, another under two, the rest under one each, in turn."""
NESTED_QUICKLY = [("fedavg", AXES[0]), ("hfedf", ALL_AT_ONCE)]


@functools.cache
def splits(alike: bool, lengths: tuple[int, ...] = LENGTHS) -> tuple[Federation, Federation]:
    """Two splits of the toy data: other rows, other lengths than `lengths`.

    `alike`: the longest rows are as long in both, so that one program serves either; else they are now here, now there.
    """
    one = toy_federation(lengths)
    unseen, many, longest = np.asarray(one.target.places)[0], sum(lengths), max(lengths)
    rows = np.random.default_rng(1).permutation(len(one.labels) - len(unseen))
    train = np.split(rows[:many], np.cumsum([lengths[0] - 2, longest + (0 if alike else 3), lengths[2] + 1]))
    held_out = np.split(rows[many:], np.cumsum([5, 1, 6] if alike else [5, 1, 7]))
    test = pad_rows([rows[: min(client, 1) if alike else client] for client, rows in enumerate(held_out)])
    target = pad_rows([unseen[:5]])
    if alike:
        target = one.target._replace(length=target.length)
    other = one._replace(train=pad_rows(train), validation=pad_rows(held_out), test=test, target=target)
    return one, other


def splits_for(name: str) -> tuple[Federation, Federation]:
    """Alike for most methods, whose own round and initialisation are then those that other tests have compiled."""
    return splits(name not in SEVERAL, lengths_for(name))


@functools.cache
def trained_on(name: str) -> tuple[list[Federation], Federation]:
    """What a method trains on: for each seed, and stacked."""
    federations = [pool(one) if shared_method(name).pooled else one for one in splits_for(name)]
    return federations, stack_seeds(federations)


@functools.cache
def alone(name: str) -> list[tuple[State, RoundInfo]]:
    """Each seed's state after two rounds of its own run, and the diagnostics of the second."""
    case, ends = shared_case(name, plan=make_plan(drop_nonfinite=True)), []
    for seed, federation in zip(SEEDS, trained_on(name)[0], strict=True):
        ends.append(case.round(case.advance(1, seed, federation), federation))
    return ends


def plan_of(axes: tuple[str, str], drop_nonfinite: bool = True) -> RoundPlan:
    plan = make_plan(axes[1], drop_nonfinite=drop_nonfinite)
    return plan._replace(execution=plan.execution._replace(seed_axis=axes[0]))


def beginning(method: Any, federation: Federation, axis: str) -> State:
    return compile_init(method, Execution(seed_axis=axis))(jnp.asarray(SEEDS, jnp.uint32), federation)


def comparable(name: str, end: tuple[State, RoundInfo]) -> tuple[State, RoundInfo]:
    """A bias before BatchNorm does nothing: its updates are rounding, and so is what a rule makes of their angles."""
    state, info = end
    return state, info._replace(coefficients={}) if METHODS[name].unit else info


@pytest.mark.slow
@pytest.mark.parametrize(("name", "axes"), mostly_slow(NESTED, NESTED_QUICKLY))
def test_several_seeds_are_as_many_runs(name: str, axes: tuple[str, str]) -> None:
    method, federation = shared_method(name), trained_on(name)[1]
    compiled = compile_round(method, plan_of(axes))
    state, _ = compiled(beginning(method, federation, axes[0]), federation)
    state, info = compiled(state, federation)
    ends = each_seed(jax.device_get((state, info)), len(SEEDS))
    assert np.asarray(state.seed).tolist() == list(SEEDS)
    for end, wanted in zip(ends, alone(name), strict=True):
        close(comparable(name, end), comparable(name, wanted), **tolerance(name))
    assert not np.allclose(flat(ends[0][0]), flat(ends[1][0])), "the seeds do not differ"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("fedavg", ("map", "map")),
        ("local", ("map", "vmap")),
        ("central", ALL_AT_ONCE),
        ("hfedf", ALL_AT_ONCE),
    ],
)
def test_several_seeds_are_evaluated_as_many_runs(name: str, axes: tuple[str, str]) -> None:
    def evaluation(axes: tuple[str, str]) -> Any:
        how = EvaluationSettings(4, 4, Execution(axes[1], seed_axis=axes[0]))
        return compile_evaluation(shared_method(name), tiny_model(method=name), how, domains=DOMAINS)

    stacked = by_numpy(lambda *leaves: np.stack(leaves), *(state for state, _ in alone(name)))
    federations = splits_for(name)
    together = evaluation(axes)(stacked, stack_seeds(federations))
    one = evaluation(("auto", "map"))
    for got, (state, _), federation in zip(each_seed(together, len(SEEDS)), alone(name), federations, strict=True):
        close(got, one(state, federation), **tolerance(name))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "axis"), [("fixed", "vmap"), ("random", "map")])
def test_embeddings_are_each_seeds_own(kind: str, axis: str) -> None:
    federations = splits(alike=True)
    method = build("hfedf", federations[0], embeddings=kind, embedding_dim=3)
    together = each_seed(beginning(method, stack_seeds(federations), axis), len(SEEDS))
    alone = compile_init(method, Execution())
    for seed, one, state in zip(SEEDS, federations, together, strict=True):
        close(state, alone(jnp.uint32(seed), one))


@pytest.mark.slow
def test_traced_once_compiled_ahead_and_the_state_used_up() -> None:
    traces: list[None] = []
    method, federation = shared_method("fedavg"), trained_on("fedavg")[1]

    def finish(*args: Any) -> Any:
        traces.append(None)
        return method.finish(*args)

    compiled = compile_round(method._replace(finish=finish), plan_of(("map", "map")))
    state = beginning(method, federation, "map")
    types = jax.tree.map(jax.typeof, state)
    ahead = compiled.lower(state, federation).compile()
    after, _ = compiled(copy(state), federation)
    traced = len(traces)
    assert jax.tree.map(jax.typeof, after) == types
    compiled(after, federation)
    assert len(traces) == traced, "the round was traced again"
    before = copy(state)
    same, _ = ahead(state, federation)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state) if leaf.ndim > 1)
    chex.assert_trees_all_equal(same, compiled(before, federation)[0])


@pytest.mark.slow
@pytest.mark.parametrize("axes", [("map", "map"), ALL_AT_ONCE], ids="-".join)
def test_what_is_not_finite_in_one_seed_leaves_the_other_as_it_is(axes: tuple[str, str]) -> None:
    method, (one, other), federation = shared_method("fedavg"), splits(alike=False), trained_on("fedavg")[1]
    compiled, start = compile_round(method, plan_of(axes, drop_nonfinite=False)), beginning(method, federation, "map")
    wanted, _ = compiled(copy(start), federation)
    held = set(np.asarray(one.validation.places).ravel().tolist())
    only_there = next(row for row in np.asarray(other.train.places)[1, :12].tolist() if row in held)
    poisoned = federation._replace(inputs=jnp.asarray(federation.inputs).at[only_there].set(POISON))
    state, info = compiled(start, poisoned)
    assert np.asarray(info.finite).tolist() == [[True] * CLIENTS, [client != 1 for client in range(CLIENTS)]]
    states = each_seed(state, 2)
    close(states[0], each_seed(wanted, 2)[0])
    assert not np.isfinite(flat(states[1].server)).any()


@pytest.mark.slow
def test_one_seed_has_no_axis() -> None:
    one, other = splits(alike=False)
    assert stack_seeds([one]) is one
    tree = {"a": jnp.arange(2)}
    assert each_seed(tree, 1) == [tree]
    both = stack_seeds([one, other])
    assert both.inputs is one.inputs, "the data are copied"
    got = over_seeds(lambda x, federation: x + federation.train.length.sum(), "map")
    assert int(got(jnp.int32(1), one)) == 24
    np.testing.assert_array_equal(got(jnp.arange(2), both), [23, 24])


def test_an_unknown_seed_axis_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="unknown seed_axis 'chunk'; expected one of: auto, map, vmap") as error:
        compile_round(shared_method("fedavg"), plan_of(("chunk", "map")))
    assert "\n" not in str(error.value)
