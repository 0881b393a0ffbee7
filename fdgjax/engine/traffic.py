"""What travels: the shapes of one client's round, found without computing anything."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Context, Method, PyTree, Trained, Variables
from fdgjax.federation import Federation


class Traffic(NamedTuple):
    """Shapes of what one client is sent, starts from, and sends back."""

    sent: PyTree
    received: Variables
    message: PyTree


def traffic(method: Method, federation: Federation) -> Traffic:
    """One client's traffic in a round of a method; `federation` is that of one seed."""

    def one_round(key: jax.Array, federation: Federation) -> Traffic:
        server, clients = method.init(key, federation)
        client = jax.tree.map(lambda leaf: leaf[0], clients)
        sent = method.send(server, client)
        received = method.start(sent, client)
        zero = jnp.zeros((), jnp.int32)
        optimizer = method.optimizer.init(received["params"])
        trained = Trained(received, optimizer, jnp.zeros(()), zero)
        message, _ = method.finish(Context(sent, client, received, zero), trained)
        return Traffic(sent, received, message)

    return jax.eval_shape(one_round, jax.random.key(0), federation)
