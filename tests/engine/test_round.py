"""A round is the same however it is executed, in whatever order the clients stand and however they are padded."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Execution
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine import State, compile_round, init_state
from fdgjax.engine.clients import over_clients
from fdgjax.methods import METHODS
from fdgjax.run.records import History, open_checkpoints
from fdgjax.utils.errors import UserError
from tests.engine.plain import PlainRound
from tests.marks import mostly_slow
from tests.toys import (
    BATCH,
    CLIENTS,
    KINDS,
    LENGTHS,
    POOLED,
    Case,
    build,
    check_recordable,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    poisonable,
    reorder,
    row,
    shared_case,
    shared_method,
    tolerance,
    toy_federation,
)

ALL = sorted(METHODS)
MOST = mostly_slow(ALL, KINDS)
FEDERATED = [name for name in ALL if name not in POOLED]
WHOLE = make_plan("map", drop_nonfinite=True)
"""Everybody, partial batches kept; leaving out what is not finite changes nothing where all is finite."""
SOME = make_plan("vmap", per_round=3, drop_nonfinite=True)
"""Three clients a round, all at a time: the one program of most methods here, with as much in it as possible."""
DRAWN = make_plan("chunk", drop_last=True, per_round=2, drop_nonfinite=True)
"""Two clients a round, both at a time; partial batches left out. For the methods of `KINDS`, which run all at a time
below or in `test_seeds`."""


def some(name: str) -> Case:
    """Every method's case; the only client of pooled data trains in every round."""
    plan = DRAWN if name in KINDS else SOME
    return shared_case(name, plan=plan if name in FEDERATED else WHOLE)


@functools.cache
def compiled(name: str, model: str) -> PlainRound:
    return PlainRound(shared_method(name, model), make_plan().batching)


def plain(name: str, drop_last: bool = False, model: str = "dense") -> PlainRound:
    """The specification; however it makes its batches, it is compiled once."""
    return compiled(name, model).with_batching(make_plan(drop_last=drop_last).batching)


@functools.cache
def expected(name: str, seed: int, rounds: int) -> tuple[State, list[float]]:
    """The specification's state after so many rounds of everybody, and the losses of the last."""
    case = shared_case(name, plan=WHOLE)
    state = expected(name, seed, rounds - 1)[0] if rounds > 1 else case.start(seed)
    return plain(name)(state, case.federation, case.everyone)


def more_padding(federation: Federation) -> Federation:
    """The same clients behind rows that are longer, filled with other clients' samples."""
    places, length = (np.asarray(leaf) for leaf in federation.train)
    padded = np.random.default_rng(0).integers(0, len(federation.labels), (len(places), places.shape[1] + 3))
    for client, count in enumerate(length):
        padded[client, :count] = places[client, :count]
    return federation._replace(train=Rows(jnp.asarray(padded, jnp.int32), federation.train.length))


def check_against_plain(name: str, case: Case, federation: Federation) -> None:
    for seed in (0, 1):
        state = case.start(seed, federation)
        for rounds in (1, 2):
            wanted, losses = expected(name, seed, rounds)
            state, info = case.round(state, federation)
            close(state, wanted, **tolerance(name))
            close(info.loss, np.asarray(losses), **tolerance(name) or {"rtol": 1e-4, "atol": 0})
            assert np.asarray(info.finite).all()
            assert np.asarray(info.participants).tolist() == case.everyone


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_one_client_at_a_time_equals_the_plain_loop(name: str) -> None:
    case = shared_case(name, plan=WHOLE)
    check_against_plain(name, case, case.federation)


@pytest.mark.parametrize("name", MOST)
def test_the_round_of_every_method_is_the_plain_loop_over_those_who_take_part(name: str) -> None:
    case = some(name)
    for seed in (0, 1):
        state, seen = case.start(seed), set()
        for _ in range(2):
            state, who = check_participants(name, case, state)
            seen |= who
        drawn = case.plan.clients_per_round or len(case.everyone)
        assert len(seen) > min(drawn, len(case.everyone) - 1), "the same clients were drawn in every round"


def check_participants(name: str, case: Case, before: State) -> tuple[State, set[int]]:
    """A round against the plain loop over its participants, whom it returns; everybody else keeps every bit."""
    kept = copy(before)
    state, info = case.round(before, case.federation)
    who = np.asarray(info.participants).tolist()
    assert len(set(who)) == (case.plan.clients_per_round or len(case.everyone))
    wanted, losses = plain(name, case.plan.batching.drop_last)(kept, case.federation, who)
    close(state, wanted, **tolerance(name))
    close(info.loss, np.asarray(losses), **tolerance(name) or {"rtol": 1e-4, "atol": 0})
    assert np.asarray(info.finite).all()
    for client in set(case.everyone) - set(who):
        chex.assert_trees_all_equal(row(state.clients, client), row(kept.clients, client))
        chex.assert_trees_all_equal(row(state.optimizers, client), row(kept.optimizers, client))
    return state, set(who)


@pytest.mark.slow
def test_two_clients_at_a_time_equal_the_plain_loop() -> None:
    case = shared_case("fedavg", plan=make_plan("chunk"))
    check_against_plain("fedavg", case, case.federation)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fdse", "uap"])
def test_all_clients_at_once_behind_more_padding_equal_the_plain_loop(name: str) -> None:
    case = shared_case(name, plan=make_plan("vmap"))
    check_against_plain(name, case, more_padding(case.federation))


@pytest.mark.slow
def test_more_padding_is_invisible_one_client_at_a_time() -> None:
    case = shared_case("fedavg", plan=WHOLE)
    check_against_plain("fedavg", case, more_padding(case.federation))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(("fedavg", "ditto", "hfedf", "scaffold"), ("fedavg", "scaffold")))
@pytest.mark.parametrize("schedule", ["cosine_epochs", "step"])
def test_an_optimiser_that_outlives_the_round_and_a_schedule_by_epochs_equal_the_plain_loop(
    name: str, schedule: str
) -> None:
    """The experiment has three rounds of two epochs: the step falls after the first epoch of the last."""
    chosen = {"client_optimizer": "sgd", "client_momentum": 0.9, "client_schedule": schedule, "keep_optimizer": True}
    method = build(name, toy_federation(), **chosen)
    case = make_case(method, plan=make_plan("vmap", per_round=3))
    specification, state, forgotten = PlainRound(method, case.plan.batching), case.start(), case.start()
    other = make_case(method._replace(keep_optimizer=False), plan=case.plan)
    for _ in range(3):
        kept = copy(state)
        state, info = case.round(state, case.federation)
        wanted, _ = specification(kept, case.federation, np.asarray(info.participants).tolist())
        close(state, wanted, rtol=1e-3, atol=1e-5)
        forgotten, _ = other.round(forgotten._replace(optimizers={}), case.federation)
    assert not np.allclose(flat(state.server), flat(forgotten.server), atol=1e-4)


@pytest.mark.slow
def test_dropout_draws_from_each_clients_own_stream() -> None:
    case = shared_case("fedavg", "dropout", make_plan("vmap", drop_last=True))
    wanted, _ = plain("fedavg", True, "dropout")(case.start(), case.federation, case.everyone)
    close(case.advance(1), wanted)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=20)
@given(clients=st.integers(1, 7), chunk=st.integers(1, 9), axis=st.sampled_from(["auto", "map", "vmap", "chunk"]))
def test_the_client_axis_is_only_an_execution_choice(clients: int, chunk: int, axis: str) -> None:
    left = np.arange(clients, dtype=np.float32)
    right = np.arange(2 * clients, dtype=np.float32).reshape(clients, 2)
    over = over_clients(lambda c, a, b: {"x": c * a + b["y"], "n": jnp.sum(b["y"]), "none": {}}, Execution(axis, chunk))
    got = over(jnp.float32(2), jnp.asarray(left), {"y": jnp.asarray(right)})
    close(got, {"x": 2 * left[:, None] + right, "n": right.sum(axis=1), "none": {}})


def test_an_unknown_client_axis_is_refused_in_one_line() -> None:
    case = shared_case("fedavg", plan=WHOLE)
    with pytest.raises(UserError, match="did you mean 'vmap'") as error:
        compile_round(case.method, make_plan("vmpa"))(case.start(), case.federation)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", mostly_slow(FEDERATED, KINDS))
def test_the_order_of_the_clients_does_not_matter(name: str) -> None:
    case, order = some(name), [2, 0, 3, 1]
    swapped = reorder(case.federation, order)
    state, after = case.advance(2), case.advance(2, federation=swapped)
    predict = jax.jit(jax.vmap(case.method.predict, in_axes=(None, 0), axis_size=CLIENTS))
    wanted = row(predict(state.server, state.clients), order)
    close(predict(after.server, after.clients), wanted, **tolerance(name))
    if name in ("fedavg", "fedprox"):
        close(after.server, state.server)
    if name in ("hfedf", "pfedhn"):
        close(after.server.weights.nu, row(state.server.weights.nu, order))
        close(after.server.weights.theta, state.server.weights.theta)


@pytest.mark.parametrize("name", MOST)
def test_what_is_not_finite_is_named_and_left_out(name: str) -> None:
    case = some(name)
    before = case.advance(1)
    who = np.asarray(case.round(copy(before), case.federation)[1].participants).tolist()
    victim = who[1 % len(who)]
    wanted, _ = plain(name, case.plan.batching.drop_last)(copy(before), case.federation, who, invisible=(victim,))
    kept = copy((row(before.clients, victim), row(before.optimizers, victim)))
    state, info = case.round(before, poison(case.federation, victim))
    assert np.asarray(info.finite).tolist() == [client != victim for client in who]
    assert np.isfinite(flat((state.server, state.clients, state.optimizers))).all()
    close(state.server, wanted.server, **tolerance(name))
    for client in set(case.everyone) - {victim}:
        close(row(state.clients, client), row(wanted.clients, client), **tolerance(name))
    chex.assert_trees_all_equal((row(state.clients, victim), row(state.optimizers, victim)), kept)


def without_change(case: Case) -> State:
    """The state after a round in which nobody is finite, which must be that before it."""
    federation, before = case.federation, case.advance(1)
    for client in case.everyone:
        federation = poison(federation, client)
    kept = copy(before)
    state, info = case.round(before, federation)
    assert not np.asarray(info.finite).any()
    chex.assert_trees_all_equal((state.clients, state.optimizers), (kept.clients, kept.optimizers))
    if not case.method.server_training:
        chex.assert_trees_all_equal(state.server, kept.server)
    return state


@pytest.mark.parametrize("name", MOST)
def test_a_round_in_which_nobody_is_finite_changes_nothing(name: str) -> None:
    state = without_change(some(name))
    assert np.isfinite(flat((state.server, state.clients))).all()


@pytest.mark.slow
def test_nor_does_momentum_move_the_server_then() -> None:
    method = build("fedavg", toy_federation(), server_momentum=0.9)
    without_change(make_case(method._replace(objective=poisonable(method.objective)), plan=WHOLE))


@pytest.mark.slow
def test_a_client_without_samples_weighs_nothing() -> None:
    case = shared_case("fedavg", plan=WHOLE)
    train = case.federation.train
    empty = case.federation._replace(train=train._replace(length=train.length.at[1].set(0)))
    wanted, _ = plain("fedavg")(case.start(), case.federation, [0, 2, 3])
    state, info = case.round(case.start(), empty)
    close(state, wanted)
    assert np.isnan(info.loss[1])


@pytest.mark.slow
def test_what_is_not_finite_is_named_also_where_it_is_not_left_out() -> None:
    case = shared_case("fedavg", plan=make_plan("chunk"))
    _, info = case.round(case.start(), poison(case.federation, 2))
    assert np.asarray(info.finite).tolist() == [True, True, False, True]


@pytest.mark.slow
def test_a_message_without_a_norm_counts_as_not_finite_and_a_large_one_is_measured() -> None:
    method = shared_method("fedavg")

    def finish(context: Any, trained: Any) -> Any:
        message, kept = method.finish(context, trained)
        factor = jnp.asarray([1.0, 9e18, 2e19, jnp.nan])[trained.steps // 2 % 4]
        return jax.tree.map(lambda leaf: leaf * 0 + factor, message), kept

    case = make_case(method._replace(finish=finish), plan=make_plan(drop_nonfinite=True))
    state, info = case.round(case.start(), case.federation)
    sent = jnp.asarray([1.0, 9e18, 2e19, jnp.nan])[np.asarray([-(-length // BATCH) for length in LENGTHS]) % 4]
    np.testing.assert_array_equal(info.largest, np.where(np.isnan(sent), np.inf, sent))
    assert np.asarray(info.finite).tolist() == (np.asarray(sent) < 1e19).tolist()
    assert info.server_finite
    assert np.isfinite(flat(state.server)).all()


@settings(derandomize=True, deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_everything_random_follows_the_seed(seed: int) -> None:
    case = shared_case("fedavg", plan=WHOLE)
    first, again, other = case.advance(1, seed), case.advance(1, seed), case.advance(1, (seed + 1) % 2**32)
    chex.assert_trees_all_equal(first, again)
    assert not np.array_equal(flat(first.server), flat(other.server))


@pytest.mark.parametrize("name", MOST)
def test_traced_once_and_types_kept(name: str) -> None:
    case = some(name)
    state = case.start()
    types = jax.tree.map(jax.typeof, state)
    state, _ = case.round(state, case.federation)
    traced = len(case.traces)
    for done in (1, 2):
        assert int(state.round) == done
        state, _ = case.round(state, case.federation)
        assert jax.tree.map(jax.typeof, state) == types
    assert len(case.traces) == traced, "the round was traced again"


@pytest.mark.parametrize("name", MOST)
def test_a_round_can_be_recorded(name: str) -> None:
    case = some(name)
    _, info = case.round(case.start(), case.federation)
    check_recordable(info, case.plan.clients_per_round or len(case.everyone))


@pytest.mark.parametrize("name", MOST)
def test_interrupted_and_resumed_is_never_interrupted(name: str, tmp_path: Path) -> None:
    """What a checkpoint keeps of any method's state is all of it: read back from the shapes, it goes on bit for bit."""
    case = some(name)
    records: list[list[dict[str, Any]]] = [[{"round": 1}]]
    with contextlib.closing(open_checkpoints(tmp_path, pytest.fail)) as checkpoints:
        checkpoints.save(1, case.advance(1), History(records, 0.5))
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = jax.eval_shape(functools.partial(init_state, case.method), case.federation, 5)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here), shapes)
    with contextlib.closing(open_checkpoints(tmp_path, pytest.fail)) as checkpoints:
        stored = checkpoints.restore(shapes)
    assert stored is not None
    assert stored[1] == History(records, 0.5)
    # An array that lies where it was told to would have the round compiled again.
    state = copy(stored[0])
    resumed, _ = case.round(state, case.federation)
    chex.assert_trees_all_equal(resumed, case.advance(2))
