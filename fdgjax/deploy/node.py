"""A client's side of a round, which uses only its own samples, its own part of its row, and what the server sends.

    row_i                          = what the node kept
    message_i, row_i               = engine.round.client_round of what was sent and row_i

The node keeps its row before and after the round that it trained last, with the numbers of both rounds. The server
names the last round in which it used this client's message, and the node continues from the row of that round. The
numbers therefore do not change if a message comes too late or is requested twice, or if the server falls back to its
checkpoint.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.deploy.account import Guard, fingerprint
from fdgjax.deploy.leaves import Leaves, blank, by_path, checked_tree, with_leaves
from fdgjax.deploy.terms import Agreed, OwnSamples, federation_of, identity_words
from fdgjax.engine.dependence import needed, traced
from fdgjax.engine.round import Participant, Shared, State, client_round, init_state
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.utils.errors import UserError

FROM_SERVER = "what the server sent"
NEVER = -1
"""The round number of a client's initial row."""


class NodeState(NamedTuple):
    """What a node keeps between rounds: its row, with the optimiser's state, before and after the round it trained
    last.

    before, after: leaves by path. accepted, trained: the rounds that left these two rows, `NEVER` for the initial row.
    run: the server's run that it trained in; '' if the transport names none.
    """

    accepted: int
    before: Leaves
    trained: int
    after: Leaves
    run: str = ""


class Node(NamedTuple):
    """A client: its party's number, what was agreed, the shapes of its messages and its row, and its functions over its
    samples.

    first: `() -> row and optimiser's state`. train: `(sent, row, seed, round) -> (message, row, loss, largest)`.
    guard: of its samples; None where they are not protected. samples: their fingerprint where they are, else ''.
    length: how many it trains on.
    """

    client: int
    agreed: Agreed
    shapes: Traffic
    like: PyTree
    first: Callable[[], PyTree]
    train: Callable[..., PyTree]
    guard: Guard | None = None
    samples: str = ""
    length: int = 0


class Answer(NamedTuple):
    """What a node sends: the message, its mean loss, and the largest magnitude of its numbers (see `RoundInfo`).

    Where samples are protected: no loss, which no noise covers, and the epsilon spent. `largest` is covered, as it is
    that of numbers that have their noise.
    """

    message: Leaves
    loss: float | None
    largest: float
    epsilon: float | None = None


def make_node(agreed: Agreed, client: int, own: OwnSamples, guard: Guard | None = None) -> Node:
    """The functions of the party `client`; nothing is compiled yet.

    Raises:
      UserError: no samples, fewer samples than a minibatch if partial minibatches are left out, labels or images that
        do not fit the terms, or no guard where samples are protected.
    """
    terms, method, plan, _ = agreed
    place = terms.trained.index(client)
    count, least = len(own.labels), plan.batching.batch_size if plan.batching.drop_last else 1
    if count < least:
        raise UserError(f"client {client} holds {count} samples; expected at least {least}; see its node-config")
    if own.inputs.shape[1:] != terms.sample_shape:
        raise UserError(
            f"client {client} holds samples {own.inputs.shape[1:]}; expected {terms.sample_shape}, as the server has it"
        )
    protected = agreed.plan.privacy is not None and agreed.plan.privacy.samples
    if protected and guard is None:
        raise UserError(f"client {client} has no secret for its noise; expected a guard of its samples")
    hidden = own._replace(labels=np.zeros_like(own.labels)) if method.server_training else own
    federation = federation_of(terms, hidden, client=place)
    # The server has applied `send` to its state already.
    received = method._replace(send=lambda server, row: server)
    of_round = client_round(received, plan)

    def mine(rows: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[place], rows)

    @jax.jit
    def first(seed: jax.Array, federation: Any) -> PyTree:
        state: State = init_state(method, federation, seed)
        return mine((state.clients, state.optimizers))

    @jax.jit
    def train(federation: Any, sent: PyTree, kept: PyTree, seed: jax.Array, round_: jax.Array) -> PyTree:
        row, optimizer = kept
        participant = Participant(row, optimizer, federation.ids[place], mine(federation.train))
        message, kept, loss, largest, _ = of_round(Shared(sent, federation, seed, round_), participant)
        return message, kept, loss, largest

    seed = np.uint32(terms.config.seed)
    return Node(
        client=client,
        agreed=agreed,
        shapes=traffic(method, federation),
        like=jax.eval_shape(first, seed, federation),
        first=partial(first, seed, federation),
        train=partial(train, federation),
        guard=guard if protected else None,
        samples=fingerprint(dict(own._asdict())) if protected else "",
        length=count,
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
      elsewhere: paths of the row's leaves that only the server changes; the node does not keep them.
      kept: what the node kept; None if it has kept nothing.

    Raises:
      UserError: what was sent does not have this method's shapes, the node lacks the row after round `accepted`, or the
        privacy budget is spent.
    """
    row, like = row_after(node, accepted, kept), by_path(node.like)
    whole = with_leaves(node.like, row, blank)
    seed: Any = np.uint32(node.agreed.terms.config.seed)
    release = ""
    if node.guard:
        release = fingerprint(identity_words(node.agreed.terms), node.client, node.samples, round_, dict(sent), row)
        seed = node.guard.root(release)
    received = checked_tree(sent, node.shapes.sent, FROM_SERVER)
    message, after, loss, largest = jax.device_get(node.train(received, whole, seed, np.int32(round_)))
    written = {path for path in like if path.removeprefix("[0]") in elsewhere and path.startswith("[0]")}
    new = {path: leaf for path, leaf in by_path(after).items() if path not in written}
    made = Answer(by_path(message), float(loss), float(largest))
    if node.guard:
        made = made._replace(loss=None, epsilon=node.guard.charge(release))
    return made, NodeState(accepted, row, round_, new)


def row_after(node: Node, accepted: int, kept: NodeState | None) -> Leaves:
    """The client's row after a round, with the optimiser's state; the initial row for `NEVER`."""
    if accepted == NEVER:
        return by_path(jax.device_get(node.first()))
    if not by_path(node.like):
        return {}  # a client of this method keeps nothing between rounds
    if kept and kept.trained == accepted:
        return kept.after
    if kept and kept.accepted == accepted:
        return kept.before
    has = f"rounds {kept.accepted + 1} and {kept.trained + 1}" if kept else "no round"
    raise UserError(
        f"client {node.client} has kept its state after {has}, and the server has that of round {accepted + 1}; "
        "expected the same; restore the node's folder of states, or start the node with fresh=true to begin anew"
        + ("" if kept else "; a run that an earlier version of fdgjax began may need that version")
    )


def model_of(node: Node, sent: Leaves, accepted: int, kept: NodeState | None) -> PyTree:
    """The variables that predict for this client, from what the server sends after a round.

    They are those that the client would train next, without what only training needs, such as a second network; a
    method that predicts by its row alone needs nothing of the server.
    """
    row = with_leaves(node.like, row_after(node, accepted, kept), blank)[0]
    method, server, shapes = node.agreed.method, node.shapes.server, node.shapes.context.client
    predicting = traced(lambda row, server: method.predict(server, row), shapes, server)
    alone = needed(predicting, [True] * len(predicting.outvars))[len(by_path(shapes)) :]
    if not any(alone):
        return method.predict(jax.tree.map(blank, server), row)
    begin = method.start(checked_tree(sent, node.shapes.sent, FROM_SERVER), row)
    trained = by_path(method.trained(begin) if method.trained else begin)
    return with_leaves(jax.eval_shape(method.predict, server, shapes), trained, blank)
