"""A client's side of a round: its own samples and the part of its row that is its own; nothing else of anybody's.

    row_i                          = what the node kept
    message_i, row_i               = engine.round.client_round of what was sent and row_i

The node keeps the row before and after the round that it trained last, with their rounds. The server names the last
round in which it used this client's message; the node goes on from the row of that round. So a message that came too
late, a server that fell back to its checkpoint, and a message that was asked for twice leave no trace in the numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.deploy.agreement import Agreed, OwnSamples, federation_of, first_row
from fdgjax.deploy.placement import Leaves, by_path, with_leaves
from fdgjax.engine.round import Participant, Shared, State, client_round, init_state
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.utils.errors import UserError

NEVER = -1
"""The round of the row that a client begins with."""


class NodeState(NamedTuple):
    """What a node keeps between rounds: rows, with the optimiser's state, before and after the round trained last.

    before, after: leaves by path. accepted, trained: the rounds after which these rows are, `NEVER` for the first.
    """

    accepted: int
    before: Leaves
    trained: int
    after: Leaves


class Node(NamedTuple):
    """A client: its number, what was agreed, its samples, the shapes of its round, and its compiled functions.

    first: `() -> row and optimiser's state`. train: `(sent, row, seed, round) -> (message, row, loss, largest)`.
    """

    client: int
    agreed: Agreed
    shapes: Traffic
    like: PyTree
    first: Callable[[], PyTree]
    train: Callable[..., PyTree]


class Answer(NamedTuple):
    """What a node sends: the message, its mean loss, and the largest magnitude of its numbers (see `RoundInfo`)."""

    message: Leaves
    loss: float
    largest: float


def make_node(agreed: Agreed, client: int, own: OwnSamples) -> Node:
    """The client's functions; nothing is compiled yet.

    Raises:
      UserError: no samples, fewer than a minibatch where partial ones are left out, or labels and images that are not
        those of the terms.
    """
    terms, method, plan = agreed
    count, least = len(own.labels), plan.batching.batch_size if plan.batching.drop_last else 1
    if count < least:
        raise UserError(f"client {client} holds {count} images; expected at least {least}; see its folder of images")
    if own.images.shape[1:] != terms.image_shape:
        raise UserError(
            f"client {client} holds images {own.images.shape[1:]}; expected {terms.image_shape}, as the server has it"
        )
    hidden = own._replace(labels=np.zeros_like(own.labels)) if method.server_training else own
    federation = federation_of(terms.clients, hidden, client=client)
    # What is sent is what `send` has made of the server's state, there.
    received = method._replace(send=lambda server, row: server)
    of_round = client_round(received, plan)

    @jax.jit
    def first(seed: jax.Array, federation: Any) -> PyTree:
        state: State = init_state(method, federation, seed)
        return first_row((state.clients, state.optimizers), client)

    @jax.jit
    def train(federation: Any, sent: PyTree, kept: PyTree, seed: jax.Array, round_: jax.Array) -> PyTree:
        row, optimizer = kept
        samples = jax.tree.map(lambda leaf: leaf[client], federation.train)
        message, kept, loss, largest, _ = of_round(
            Shared(sent, federation, seed, round_), Participant(row, optimizer, federation.ids[client], samples)
        )
        return message, kept, loss, largest

    seed = np.uint32(terms.config.seed)
    return Node(
        client=client,
        agreed=agreed,
        shapes=traffic(method, federation),
        like=jax.eval_shape(first, seed, federation),
        first=partial(first, seed, federation),
        train=partial(train, federation),
    )


def answer(
    node: Node, sent: Leaves, round_: int, accepted: int, elsewhere: frozenset[str], kept: NodeState | None
) -> tuple[Answer, NodeState]:
    """A client's part of one round.

    Args:
      node: the client.
      sent: what the server sent, by path.
      round_: the round's number, from 0.
      accepted: the last round in which the server used this client's message; `NEVER` for none.
      elsewhere: paths of the row that the server alone changes, which the node does not keep.
      kept: what the node kept, None where it has nothing.

    Raises:
      UserError: what was sent is not of this method's shapes, or the node lacks the row of the round.
    """
    row, like = row_after(node, accepted, kept), by_path(node.like)
    whole = with_leaves(node.like, row, blank)
    message, after, loss, largest = jax.device_get(
        node.train(
            with_leaves(node.shapes.sent, checked_leaves(sent, node.shapes.sent, "what the server sent"), blank),
            whole,
            np.uint32(node.agreed.terms.config.seed),
            np.int32(round_),
        )
    )
    written = {path for path in like if path.removeprefix("[0]") in elsewhere and path.startswith("[0]")}
    new = {path: leaf for path, leaf in by_path(after).items() if path not in written}
    return Answer(by_path(message), float(loss), float(largest)), NodeState(accepted, row, round_, new)


def row_after(node: Node, accepted: int, kept: NodeState | None) -> Leaves:
    """The client's row after a round, the optimiser's state included; the one it begins with for `NEVER`."""
    if accepted == NEVER:
        return by_path(jax.device_get(node.first()))
    if kept and kept.trained == accepted:
        return kept.after
    if kept and kept.accepted == accepted:
        return kept.before
    has = f"rounds {kept.accepted + 1} and {kept.trained + 1}" if kept else "no round"
    raise UserError(
        f"client {node.client} has kept its state after {has}, and the server has that of round {accepted + 1}; "
        "expected the same; restore the node's folder of states, or start the node with fresh=true to begin anew"
    )


def checked_leaves(leaves: Leaves, like: PyTree, what: str) -> Leaves:
    """The leaves, which have the paths, shapes and types of a tree.

    Raises:
      UserError: they do not.
    """
    for path, wanted in by_path(like).items():
        found = leaves.get(path)
        got = None if found is None else (found.shape, str(found.dtype))
        if got != (wanted.shape, str(wanted.dtype)):
            raise UserError(
                f"{what} has {got or 'nothing'} at '{path}'; expected {wanted.shape} {wanted.dtype}; both sides need "
                "the same version of fdgjax and the same config"
            )
    return leaves


def model_of(node: Node, sent: Leaves, accepted: int, kept: NodeState | None) -> PyTree:
    """The variables that predict for this client, from what the server sends after the last round."""
    row = with_leaves(node.like, row_after(node, accepted, kept), blank)[0]
    method, whole = node.agreed.method, with_leaves(node.shapes.sent, sent, blank)
    begin = method.start(whole, row)
    return method.trained(begin) if method.trained else begin


def blank(leaf: Any) -> np.ndarray:
    """Zeros of the host: no program is compiled for them."""
    return np.zeros(leaf.shape, leaf.dtype)
