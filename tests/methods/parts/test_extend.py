"""Whatever is added to a method, the method itself sees its own parts and trains as before."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Context, Method, PyTree, Trained
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.utils.variables import bytes_of
from tests.marks import mostly_slow
from tests.toys import CLIENTS, KINDS, close, flat, make_case, make_plan, shared_case, shared_method

pytestmark = pytest.mark.slow

WHOLE = make_plan("map", drop_nonfinite=True)


def seen_rounds(context: Context, trained: Trained, row: PyTree) -> jax.Array:
    """How many rounds the client has seen, as the row was just told."""
    del context, trained
    return row


def counting(base: Method) -> Method:
    """The method with everything that can be added: a counter at the server, sent, and counted on in the rows."""
    extended = extend(
        base,
        server=lambda fresh: jnp.zeros(()),
        sent=lambda server, row: server.more,
        row=RowExtension(begin=begin, after=lambda context, trained: context.client.more + context.sent.more + 1),
        message=seen_rounds,
    )

    def update(server: Extended, clients: Extended, step: PyTree, server_step: PyTree) -> tuple[Extended, Extended]:
        server, clients = extended.update(server, clients, step, server_step)
        return server._replace(more=server.more + 1), clients

    return extended._replace(update=update)


def begin(fresh: Fresh) -> jax.Array:
    assert jax.tree.leaves(fresh.models())[0].shape[0] == len(fresh.federation.ids)
    return jnp.zeros(len(fresh.federation.ids))


@pytest.mark.parametrize("name", mostly_slow(["fedavg", "scaffold", "hfedf", "uap"], ["fedavg", "hfedf"]))
def test_the_base_method_trains_as_if_nothing_had_been_added(name: str) -> None:
    base = shared_method(name)
    case = make_case(counting(base), plan=WHOLE)
    state, plain = case.advance(2), shared_case(name, plan=WHOLE).advance(2)
    close(state.server.base, plain.server)
    close(state.clients.base, plain.clients)
    assert float(state.server.more) == 2
    # One in the first round, and one more than the server's counter in the second.
    np.testing.assert_array_equal(state.clients.more, np.full(len(case.federation.ids), 3.0))


def test_what_is_added_to_a_message_reaches_the_aggregation_and_travels() -> None:
    method = counting(shared_method("fedavg"))
    server, clients = method.init(jax.random.key(0), shared_case("fedavg", plan=WHOLE).federation)
    mine = jax.tree.map(lambda leaf: leaf[0], clients)
    sent = method.send(server, mine)
    received = method.start(sent, mine)
    trained = Trained(received, (), jnp.zeros(()), jnp.int32(1))
    message, kept = method.finish(Context(sent, mine, received, jnp.int32(0)), trained)
    assert float(message.more) == float(kept.more) == 1
    assert bytes_of(message) == bytes_of(message.base) + 4
    assert bytes_of(sent) == bytes_of(sent.base) + 4
    messages = jax.tree.map(lambda leaf: jnp.stack([leaf] * CLIENTS), message)
    step, _ = method.aggregate(server, clients, messages, jnp.ones(CLIENTS))
    chex.assert_trees_all_equal_structs(step, message.base)


@pytest.mark.parametrize("name", KINDS)
def test_a_part_that_is_not_extended_is_left_as_it_is(name: str) -> None:
    base = shared_method(name)
    same = extend(base, row=RowExtension(lambda fresh: jnp.zeros(len(fresh.federation.ids))))
    federation = shared_case(name, plan=WHOLE).federation
    server, clients = jax.jit(base.init)(jax.random.key(0), federation)
    wanted_server, extended = jax.jit(same.init)(jax.random.key(0), federation)
    np.testing.assert_array_equal(flat(server), flat(wanted_server))
    np.testing.assert_array_equal(flat(clients), flat(extended.base))
