"""Which party holds which leaf of a client's row, derived from the leaves that the server's functions read and write.

A row holds all state that is kept for a client, "by the client or by the server on its behalf". A simulation need not
distinguish the two; between real parties it is a question of privacy. The answer follows from the method's own
functions, traced to a jaxpr: a leaf on which neither `send` nor `aggregate` nor `update` depends is held by the node
alone and never leaves it.

    send       (server, row_i)                          -> sent_i         reads a leaf: the server holds it
    aggregate, update (server, rows, messages, weights) -> server, rows   reads or writes a leaf: the server holds it

A leaf that the server reads and the node writes, such as a count of rounds, is held by both: the server computes the
same new value (`Placement.replayed`), which depends only on what the server has.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fdgjax.contract import Context, Method, PyTree, ServerStep, Trained
from fdgjax.data.federation import Federation
from fdgjax.deploy.leaves import by_path
from fdgjax.engine.dependence import needed, traced
from fdgjax.engine.traffic import traffic
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import any_key


class Placement(NamedTuple):
    """Who holds which leaf of a client's row, by path.

    server: the leaves that the server holds. written: those of them that only the server changes; a node's values for
    them are meaningless. replayed: those of them whose new value after a node's training the server computes itself.
    The node holds all leaves but `written`.
    """

    server: frozenset[str]
    written: frozenset[str]
    replayed: frozenset[str]


def placement_of(method: Method, federation: Federation) -> Placement:
    """Who holds which leaf of a row; `federation` may be any party's, as only its shapes count.

    Raises:
      UserError: the server needs a leaf that only the client can compute and that the client does not send.
    """
    shapes = traffic(method, federation)
    server, row = shapes.server, shapes.context.client
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), (row, shapes.message))
    paths = list(by_path(row))

    def at_server(rows: PyTree, server: PyTree, messages: PyTree, weights: PyTree, server_step: ServerStep) -> PyTree:
        aggregate, _ = method.aggregate(server, rows, messages, weights)
        after, rows = method.update(server, rows, aggregate, server_step)
        return rows, after

    number: Any = jax.ShapeDtypeStruct((), jax.numpy.int32)
    key: Any = any_key()
    weight = jax.ShapeDtypeStruct((1,), jax.numpy.float32)
    step = traced(at_server, one[0], server, one[1], weight, ServerStep(number, key))
    rows_in, rows_out = step.invars[: len(paths)], step.outvars[: len(paths)]
    kept = [out is into for into, out in zip(rows_in, rows_out, strict=True)]
    read = needed(step, [not same for same in kept] + [True] * (len(step.outvars) - len(paths)))[: len(paths)]
    sending = traced(lambda row, server: method.send(server, row), row, server)
    sent = needed(sending, [True] * len(sending.outvars))[: len(paths)]
    held = [not same or used or given for same, used, given in zip(kept, read, sent, strict=True)]

    def kept_row(row: PyTree, round_: PyTree, context: Context, trained: Trained) -> PyTree:
        return method.finish(context._replace(client=row, round=round_), trained)[1]

    finishing = traced(kept_row, row, number, shapes.context, shapes.trained)
    known = [*held, True] + [False] * (len(finishing.invars) - len(paths) - 1)
    own = [follows(finishing, place, known) for place in range(len(paths))]
    for path, holds, same, follow in zip(paths, held, kept, own, strict=True):
        if holds and same and not follow:
            raise UserError(
                f"the server of this method needs '{path}' of a client's row, which the client changes and does not "
                "send; expected it in the method's messages; the method can be simulated alone"
            )
    named = lambda which: frozenset(path for path, yes in zip(paths, which, strict=True) if yes)  # noqa: E731
    return Placement(
        server=named(held),
        written=named([not same for same in kept]),
        replayed=named([holds and follow for holds, follow in zip(held, own, strict=True)]),
    )


def check_init(method: Method, federation: Federation, placement: Placement) -> None:
    """Raises a `UserError` if the initial state of one party depends on another's data: the server's on what only a
    client has, or a client's on what only the server has."""
    rows = jax.eval_shape(method.init, any_key(), federation)[1]
    made = traced(method.init, any_key(), federation)
    inputs = list(by_path((any_key(), federation)))
    paths = list(by_path(rows))
    first = len(made.outvars) - len(paths)
    at_server = [True] * first + [path in placement.server for path in paths]
    for who, outputs, private in (
        ("the server", at_server, ("train.places", "validation")),
        ("a client", [not here for here in at_server], ("server.",)),
    ):
        used = [path for path, yes in zip(inputs, needed(made, outputs), strict=True) if yes]
        found = [path for path in used if any(word in path for word in private)]
        if found:
            raise UserError(
                f"the init of this method computes what {who} begins with from samples of another party "
                f"({found[0]}); expected settings that need none (hfedf: method.embeddings=learned or random); the "
                "method can be simulated with these"
            )


def unseen_from_server(method: Method, federation: Federation, placement: Placement) -> bool:
    """Whether the server alone can compute the model for an unseen domain, which then needs no leaf held by nodes
    alone."""
    server, rows = jax.eval_shape(method.init, any_key(), federation)
    made = traced(lambda rows, server: method.unseen(server, rows), rows, server)
    used = needed(made, [True] * len(made.outvars))
    return all(path in placement.server for path, yes in zip(by_path(rows), used, strict=False) if yes)


def follows(jaxpr: Any, place: int, known: Sequence[bool]) -> bool:
    """Whether the output of a jaxpr at `place` depends on known inputs alone."""
    used = needed(jaxpr, [number == place for number in range(len(jaxpr.outvars))])
    return all(has for has, yes in zip(known, used, strict=True) if yes)
