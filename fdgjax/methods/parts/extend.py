"""A method whose clients' rows hold something more, of which the method itself knows nothing."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Moment,
    ObjectiveResult,
    Prepared,
    PyTree,
    Samples,
    Trained,
    Variables,
)
from fdgjax.data.federation import Federation


class Row(NamedTuple):
    """A client's row of the method, and what was added to it."""

    client: PyTree
    more: PyTree


def extend_rows(
    method: Method,
    begin: Callable[[PyTree, PyTree, Federation], PyTree],
    after: Callable[[Context, Trained], PyTree],
) -> Method:
    """The same method with more in each client's row.

    Args:
      method: sees its own rows only.
      begin: `(server, clients, federation) -> [clients, ...]`, what is added before the first round.
      after: what is added after a round; the former is `context.client.more`.
    """

    def inside(context: Context) -> Context:
        return context._replace(client=context.client.client)

    def init(key: jax.Array, federation: Federation) -> tuple[PyTree, Row]:
        server, clients = method.init(key, federation)
        return server, Row(clients, begin(server, clients, federation))

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        return method.objective(variables, batch, key, inside(context))

    own_prepare = method.prepare

    def prepare(context: Context, samples: Samples) -> Prepared:
        return own_prepare(inside(context), samples) if own_prepare else Prepared()

    def finish(context: Context, trained: Trained) -> tuple[PyTree, Row]:
        message, kept = method.finish(inside(context), trained)
        return message, Row(kept, after(context, trained))

    def update(server: PyTree, rows: Row, aggregate: PyTree, moment: Moment) -> tuple[PyTree, Row]:
        server, clients = method.update(server, rows.client, aggregate, moment)
        return server, rows._replace(client=clients)

    return method._replace(
        init=init,
        send=lambda server, row: method.send(server, row.client),
        start=lambda sent, row: method.start(sent, row.client),
        objective=objective,
        prepare=prepare if own_prepare else None,
        finish=finish,
        aggregate=lambda server, rows, messages, weights: method.aggregate(server, rows.client, messages, weights),
        update=update,
        predict=lambda server, row: method.predict(server, row.client),
        unseen=lambda server, rows: method.unseen(server, rows.client),
    )
