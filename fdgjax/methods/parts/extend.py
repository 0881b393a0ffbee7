"""A method with more in its server state, its messages or its clients' rows than its base method.

    sent_i    = (base's sent_i, more)        message_i = (base's message_i, more)
    server    = (base's server, more)        row_i     = (base's row_i, more)

The base method sees its own parts and nothing else. Functions that are replaced in the result are handed the extended
values:

    extended = extend(fedavg(setup, h), server=control, sent=lambda server, row: server.more, ...)
    return extended._replace(update=update)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import (
    WHOLE,
    Batch,
    Context,
    Lens,
    Method,
    Objective,
    ObjectiveResult,
    Prepared,
    PyTree,
    Samples,
    ServerStep,
    ServerTraining,
    Trained,
    UpdateFn,
    Variables,
)
from fdgjax.data.federation import Federation
from fdgjax.utils.errors import UserError


class Extended(NamedTuple):
    """A value of the base method, and what is added to it."""

    base: PyTree
    more: PyTree


class Fresh(NamedTuple):
    """The base method before the first round.

    key: of the initialisation. server, clients: its state. federation: the data.
    models: computes the variables that each client starts from, `[clients, ...]`.
    """

    key: jax.Array
    server: PyTree
    clients: PyTree
    federation: Federation
    models: Callable[[], Variables]


def unchanged_row(context: Context, trained: Trained) -> PyTree:
    """A row's addition, unchanged."""
    del trained
    return context.client.more


def aux(context: Context, trained: Trained, row: PyTree) -> PyTree:
    """A message's addition: what `prepare` computed before the client trained."""
    del trained, row
    return context.aux


def aux_of_steps(context: Context, trained: Trained, row: PyTree) -> PyTree:
    """A message's addition: what `prepare` counted, or zeros from a client that took no step: with `drop_last` it may
    have fewer samples than a batch, and what it did not train on does not count."""
    del row
    return jax.tree.map(lambda leaf: jnp.where(trained.steps > 0, leaf, 0), context.aux)


class RowExtension(NamedTuple):
    """What is added to clients' rows.

    begin: `(fresh) -> [clients, ...]`. after: `(context, trained) -> more`, when a client has trained; the former value
    is `context.client.more`.
    """

    begin: Callable[[Fresh], PyTree]
    after: Callable[[Context, Trained], PyTree] = unchanged_row


WITHIN = Lens(lambda whole: whole.base, lambda whole, base: whole._replace(base=base))


def extend(
    base: Method,
    *,
    server: Callable[[Fresh], PyTree] | None = None,
    sent: Callable[[PyTree, PyTree], PyTree] | None = None,
    row: RowExtension | None = None,
    message: Callable[[Context, Trained, PyTree], PyTree] | None = None,
) -> Method:
    """The base method with more state; each part that is given turns the base's values into `Extended` ones.

    Args:
      base: the method that is extended; it sees its own parts of every value.
      server: `(fresh) -> more`, what is added to the server's state.
      sent: `(server, row) -> more`, what is added to what a client is sent.
      row: what is added to clients' rows.
      message: `(context, trained, row's new addition) -> more`, what is added to what a client sends.

    Returns:
      A method that aggregates and updates the base's parts alone: `aggregate` takes extended messages and returns the
      base's aggregate, `update` takes that aggregate and leaves every addition as it was.

    Raises:
      UserError: a part that is no function, or a `row` that is no `RowExtension`.
    """
    for name, part in (("server", server), ("sent", sent), ("message", message)):
        if part is not None and not callable(part):
            raise UserError(f"extend got {type(part).__name__} as its {name}; expected a function, see fdgjax.methods")
    if row is not None and not isinstance(row, RowExtension):
        raise UserError(f"extend got {type(row).__name__} as its row; expected RowExtension(begin, after)")
    at_server, at_row = (WITHIN if part else WHOLE for part in (server, row))
    in_sent, in_message = (WITHIN if part else WHOLE for part in (sent, message))

    def of_base(context: Context) -> Context:
        return context._replace(sent=in_sent.get(context.sent), client=at_row.get(context.client))

    def init(key: jax.Array, federation: Federation) -> tuple[PyTree, PyTree]:
        state, clients = base.init(key, federation)

        def models() -> Variables:
            start = lambda client: base.start(base.send(state, client), client)  # noqa: E731
            return jax.vmap(start, axis_size=len(federation.ids))(clients)

        fresh = Fresh(key, state, clients, federation, models)
        at_first = Extended(state, server(fresh)) if server else state
        rows = Extended(clients, row.begin(fresh)) if row else clients
        return at_first, rows

    def send(state: PyTree, client: PyTree) -> PyTree:
        given = base.send(at_server.get(state), at_row.get(client))
        return Extended(given, sent(state, client)) if sent else given

    def finish(context: Context, trained: Trained) -> tuple[PyTree, PyTree]:
        base_message, kept = base.finish(of_base(context), trained)
        more = row.after(context, trained) if row else ()
        outgoing = Extended(base_message, message(context, trained, more)) if message else base_message
        return outgoing, Extended(kept, more) if row else kept

    def aggregate(state: PyTree, clients: PyTree, messages: PyTree, weights: jax.Array) -> tuple[PyTree, PyTree]:
        return base.aggregate(at_server.get(state), at_row.get(clients), in_message.get(messages), weights)

    def update(state: PyTree, clients: PyTree, step: PyTree, server_step: ServerStep) -> tuple[PyTree, PyTree]:
        new_state, new_clients = base.update(at_server.get(state), at_row.get(clients), step, server_step)
        return at_server.set(state, new_state), at_row.set(clients, new_clients)

    def prepare(context: Context, samples: Samples) -> Prepared:
        return base.prepare(of_base(context), samples) if base.prepare else Prepared()

    return base._replace(
        init=init,
        send=send,
        start=lambda sent, client: base.start(in_sent.get(sent), at_row.get(client)),
        objective=on_context(base.objective, of_base),
        optimizer=optimizer_on_context(base.optimizer, of_base),
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=lambda state, client: base.predict(at_server.get(state), at_row.get(client)),
        unseen=lambda state, clients: base.unseen(at_server.get(state), at_row.get(clients)),
        prepare=prepare if base.prepare else None,
        server_training=server_training_within(base.server_training, at_server) if base.server_training else None,
        updates=lens_within(in_message, base.updates),
    )


def keeping_more(extended: Method) -> UpdateFn:
    """An `update` for an `aggregate` that returns the base's and what the server's addition becomes."""

    def update(server: Extended, clients: PyTree, step: Extended, server_step: ServerStep) -> tuple[Extended, PyTree]:
        server, clients = extended.update(server, clients, step.base, server_step)
        return server._replace(more=step.more), clients

    return update


def lens_within(outer: Lens, inner: Lens) -> Lens:
    """The lens of a part within a part."""
    return Lens(
        lambda whole: inner.get(outer.get(whole)),
        lambda whole, part: outer.set(whole, inner.set(outer.get(whole), part)),
    )


def on_context(objective: Objective, change: Callable[[Context], Context]) -> Objective:
    """The objective in a changed context."""

    def changed(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        return objective(variables, batch, key, change(context))

    return changed


def optimizer_on_context(
    optimizer: optax.GradientTransformation, change: Callable[[Context], Context]
) -> optax.GradientTransformationExtraArgs:
    """The optimiser in a changed context."""
    flexible = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None, *, context: Context, **others: Any
    ) -> tuple[PyTree, PyTree]:
        return flexible.update(updates, state, params, context=change(context), **others)

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def server_training_within(training: ServerTraining, server: Lens) -> ServerTraining:
    """Training at the server, in the base's part of the server's state."""
    return training._replace(
        begin=lambda state: training.begin(server.get(state)),
        objective=on_context(training.objective, lambda context: context._replace(sent=server.get(context.sent))),
        finish=lambda state, trained: server.set(state, training.finish(server.get(state), trained)),
    )
