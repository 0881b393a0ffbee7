"""Which model a client is judged by: what it would start the next round from, or what it trained last."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax

from fdgjax.contract import Batch, Context, Method, Moment, PyTree, Trained, Variables
from fdgjax.federation import Federation


class Row(NamedTuple):
    """A client's row of the method, and the variables it trained last."""

    client: PyTree
    trained: Variables


def as_received(method: Method) -> Method:
    """The method as it is: a client is predicted by what the server and its own row make of the last round."""
    return method


def as_trained(method: Method) -> Method:
    """The method with each client predicted by the model it trained last, before anything was aggregated.

    So FLGo, the framework of FDSE's official code, judges clients that have a model of their own; others are judged by
    the global model, and the method is left as it is. Training and messages do not change.
    """
    own = method.trained
    if own is None:
        return method

    def init(key: jax.Array, federation: Federation) -> tuple[PyTree, Row]:
        server, clients = method.init(key, federation)
        predict = jax.vmap(method.predict, in_axes=(None, 0), axis_size=len(federation.ids))
        return server, Row(clients, predict(server, clients))

    def objective(
        variables: Variables, batch: Batch, key: jax.Array, context: Context
    ) -> tuple[jax.Array, tuple[Variables, dict[str, jax.Array]]]:
        return method.objective(variables, batch, key, context._replace(client=context.client.client))

    def finish(context: Context, trained: Trained) -> tuple[PyTree, Row]:
        message, kept = method.finish(context._replace(client=context.client.client), trained)
        return message, Row(kept, own(trained.variables))

    def update(server: PyTree, rows: Row, aggregate: PyTree, moment: Moment) -> tuple[PyTree, Row]:
        server, clients = method.update(server, rows.client, aggregate, moment)
        return server, rows._replace(client=clients)

    return method._replace(
        init=init,
        send=lambda server, row: method.send(server, row.client),
        start=lambda sent, row: method.start(sent, row.client),
        objective=objective,
        finish=finish,
        aggregate=lambda server, rows, messages, weights: method.aggregate(server, rows.client, messages, weights),
        update=update,
        predict=lambda server, row: row.trained,
        unseen=lambda server, rows: method.unseen(server, rows.client),
    )


CLIENT_MODELS: Mapping[str, Callable[[Method], Method]] = {"received": as_received, "trained": as_trained}
