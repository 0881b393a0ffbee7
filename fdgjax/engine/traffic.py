"""Communication: the shapes of one client's round, found by abstract evaluation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, Method, PyTree, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.unchanged import check_rows
from fdgjax.utils.random import any_key


class Traffic(NamedTuple):
    """Shapes of one client's round.

    sent: what it is sent. received: what it starts from. message: what it sends back. server: the server's state.
    context, trained: the arguments of `Method.finish`.
    """

    sent: PyTree
    received: Variables
    message: PyTree
    server: PyTree
    context: Context
    trained: Trained


def traffic(method: Method, federation: Federation) -> Traffic:
    """One client's traffic in a round of a method; `federation` is that of one seed. Raises like `check_rows`."""

    def one_round(key: jax.Array, federation: Federation) -> Traffic:
        server, clients = method.init(key, federation)
        check_rows(clients, len(federation.ids))
        client = jax.tree.map(lambda leaf: leaf[0], clients)
        sent = method.send(server, client)
        received = method.start(sent, client)
        zero = jnp.zeros((), jnp.int32)
        context = Context(sent, client, received, zero)
        if method.prepare:
            data = LocalData(federation, federation.train.places[0], federation.train.length[0])
            context = context._replace(aux=method.prepare(context, samples_of(data, 1)).aux)
        optimizer = method.optimizer.init(received["params"])
        trained = Trained(received, optimizer, jnp.zeros(()), zero)
        message, _ = method.finish(context, trained)
        return Traffic(sent, received, message, server, context, trained)

    return jax.eval_shape(one_round, any_key(), federation)


def sends_update(method: Method, federation: Federation) -> bool:
    """Whether a client's message has an update, the part that attacks forge and defences judge: a method may send
    prototypes instead, or nothing."""
    return bool(optax.tree.size(method.updates.get(traffic(method, federation).message)))
