"""A round is the same however it is executed, in whatever order the clients stand and however they are padded."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.plain import PlainRound
from fdgjax.engine import State, compile_round, init_state
from fdgjax.errors import UserError
from fdgjax.federation import Federation, Rows, pool
from fdgjax.methods import METHODS
from tests.toys import CLIENTS, Case, build, close, copy, flat, make_plan, reorder, row, shared_case, toy_federation

ALL = sorted(METHODS)
FEDERATED = [name for name in ALL if not build(name, toy_federation()).pooled]
PLAIN: dict[tuple[str, str, bool], PlainRound] = {}


def plain(name: str, case: Case, model: str = "dense") -> PlainRound:
    return PLAIN.setdefault((name, model, case.batching.drop_last), PlainRound(case.method, case.batching))


def advance(case: Case, state: State, rounds: int, federation: Federation | None = None) -> State:
    for _ in range(rounds):
        state, _ = case.round(state, federation or case.federation)
    return state


@pytest.mark.parametrize("axis", ["map", "vmap", "chunk"])
@pytest.mark.parametrize("name", ALL)
def test_a_round_equals_the_plain_loop(name: str, axis: str) -> None:
    case = shared_case(name, plan=make_plan(axis))
    everyone = list(range(len(case.federation.ids)))
    expected = case.start()
    for seed in (0, 1):
        expected, state = case.start(seed), case.start(seed)
        for _ in range(2):
            expected, losses = plain(name, case)(expected, case.federation, everyone)
            state, info = case.round(state, case.federation)
            close(state, expected)
            np.testing.assert_allclose(info.loss, losses, rtol=1e-4)
            assert np.asarray(info.finite).all()
            assert np.asarray(info.participants).tolist() == everyone


@pytest.mark.parametrize("name", ALL)
def test_leaving_out_partial_batches_equals_the_plain_loop(name: str) -> None:
    case = shared_case(name, plan=make_plan(drop_last=True))
    expected, losses = plain(name, case)(case.start(), case.federation, list(range(len(case.federation.ids))))
    state, info = case.round(case.start(), case.federation)
    close(state, expected)
    np.testing.assert_allclose(info.loss, losses, rtol=1e-4)


@pytest.mark.parametrize("axis", ["map", "vmap"])
def test_dropout_draws_from_each_clients_own_stream(axis: str) -> None:
    case = shared_case("fedavg", "dropout", make_plan(axis, drop_last=True))
    expected, _ = plain("fedavg", case, "dropout")(case.start(), case.federation, list(range(CLIENTS)))
    state, _ = case.round(case.start(), case.federation)
    close(state, expected)


def test_auto_is_one_of_the_others_and_an_unknown_axis_is_refused() -> None:
    case = shared_case("fedavg", plan=make_plan("auto"))
    close(advance(case, case.start(), 1), advance(shared_case("fedavg", plan=make_plan("vmap")), case.start(), 1))
    with pytest.raises(UserError, match="client_axis") as error:
        compile_round(case.method, make_plan("vmpa"))(case.start(), case.federation)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ALL)
def test_padding_is_invisible(name: str) -> None:
    plain_case = shared_case(name, plan=make_plan())
    federation = plain_case.federation
    places, length = (np.asarray(leaf) for leaf in federation.train)
    rubbish = np.random.default_rng(0).integers(0, len(federation.images), (len(places), places.shape[1] + 3))
    for client, count in enumerate(length):
        rubbish[client, :count] = places[client, :count]
    padded = federation._replace(train=Rows(jnp.asarray(rubbish, jnp.int32), federation.train.length))
    close(advance(plain_case, plain_case.start(), 1, padded), advance(plain_case, plain_case.start(), 1))


@pytest.mark.parametrize("per_round", [0, 2])
@pytest.mark.parametrize("name", FEDERATED)
def test_the_order_of_the_clients_does_not_matter(name: str, per_round: int) -> None:
    case = shared_case(name, plan=make_plan(per_round=per_round))
    state = advance(case, case.start(), 2)
    for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
        swapped = reorder(case.federation, order)
        after = advance(case, init_state(case.method, swapped, 0), 2, swapped)
        predict = jax.vmap(case.method.predict, in_axes=(None, 0), axis_size=CLIENTS)
        expected = jax.tree.map(lambda leaf, order=order: leaf[jnp.asarray(order)], predict(state.server, state.clients))
        close(predict(after.server, after.clients), expected)


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_the_order_of_the_clients_leaves_the_server_as_it_is(name: str) -> None:
    case = shared_case(name, plan=make_plan())
    swapped = reorder(case.federation, [2, 0, 3, 1])
    after = advance(case, init_state(case.method, swapped, 0), 2, swapped)
    close(after.server, advance(case, case.start(), 2).server)


@pytest.mark.parametrize("name", ["hfedf", "pfedhn"])
def test_embeddings_travel_with_their_clients(name: str) -> None:
    case, order = shared_case(name, plan=make_plan()), [2, 0, 3, 1]
    swapped = reorder(case.federation, order)
    weights = advance(case, case.start(), 2).server.weights
    after = advance(case, init_state(case.method, swapped, 0), 2, swapped).server.weights
    close(after.nu, weights.nu[jnp.asarray(order)])
    close(after.theta, weights.theta)


@pytest.mark.parametrize("name", FEDERATED)
def test_only_those_who_take_part_change(name: str) -> None:
    case = shared_case(name, plan=make_plan(per_round=2))
    reference = plain(name, case)
    state, seen = case.start(), set()
    for _ in range(3):
        before = copy(state)
        state, info = case.round(state, case.federation)
        who = np.asarray(info.participants).tolist()
        assert len(set(who)) == 2
        seen |= set(who)
        close(state, reference(before, case.federation, who)[0])
        for client in set(range(CLIENTS)) - set(who):
            chex.assert_trees_all_equal(row(state.clients, client), row(before.clients, client))
            chex.assert_trees_all_equal(row(state.optimizers, client), row(before.optimizers, client))
    assert len(seen) > 2, "the same clients are drawn every round"


@settings(derandomize=True, deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_streams_follow_the_seed(seed: int) -> None:
    case = shared_case("fedavg", plan=make_plan())
    first, again = (advance(case, case.start(seed), 1) for _ in range(2))
    chex.assert_trees_all_equal(first, again)
    other = advance(case, case.start((seed + 1) % 2**32), 1)
    assert not np.array_equal(flat(first.server), flat(other.server))


@pytest.mark.parametrize("name", ALL)
def test_traced_once_per_experiment(name: str) -> None:
    federation = toy_federation()
    method = build(name, federation)
    trained = pool(federation) if method.pooled else federation
    counted = compile_round(
        method._replace(finish=chex.assert_max_traces(method.finish, n=1)), make_plan("map", epochs=1)
    )
    state = jax.jit(init_state, static_argnums=0)(method, trained, 0)
    for done in range(3):
        assert int(state.round) == done
        state, _ = counted(state, trained)


def test_what_goes_in_comes_out_with_the_same_types() -> None:
    for name in ALL:
        case = shared_case(name, plan=make_plan())
        before = case.start()
        shapes = jax.tree.map(jax.typeof, before)
        after = advance(case, before, 1)
        assert jax.tree.map(jax.typeof, after) == shapes, name
