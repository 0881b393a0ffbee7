"""The server's side of a round: its own state, the parts of the clients' rows that it holds, and none of their samples.

server                = its own training, if it trains before the clients
sent_i                = send(server, row_i)
server, rows          = engine.round.server_round of the messages
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import Context, PyTree, Trained
from fdgjax.data.federation import Federation
from fdgjax.deploy.account import Guard, fingerprint
from fdgjax.deploy.leaves import Leaves, blank, by_path, checked_leaves, with_leaves
from fdgjax.deploy.node import NEVER
from fdgjax.deploy.placement import Placement, check_init, placement_of, unseen_from_server
from fdgjax.deploy.terms import Agreed, OwnSamples, federation_of, identity_words
from fdgjax.engine.privacy.noise import private_messages
from fdgjax.engine.round import State, all_finite, init_state, participants, server_round, train_server
from fdgjax.engine.traffic import Traffic, traffic
from fdgjax.utils.errors import UserError


class DeployedState(NamedTuple):
    """Everything the server needs to continue exactly.

    state: the engine's `State`, but `clients` has only the leaves that the server holds, by path, `[clients, ...]`, and
      `optimizers` is empty, as the clients' optimiser states are at the nodes.
    lengths: int32 `[clients]`, each client's number of training samples.
    accepted: int32 `[clients]`, the last round in which each client's message was used; `NEVER` for none.
    """

    state: State
    lengths: np.ndarray
    accepted: np.ndarray


class ServerPrograms(NamedTuple):
    """The server's functions.

    federation: as the server sees it.
    first: `(lengths) -> DeployedState`. begin: `(state) -> (server, who, sent [participants, ...], loss)`.
    finish: `(state, server, who, lengths, messages, arrived, root of the noise) -> (state, finite, loss)`.
    guard: of the clients where the server protects them by noise; None until `run_rounds` has its folder.
    """

    agreed: Agreed
    shapes: Traffic
    placement: Placement
    federation: Federation
    first: Callable[[np.ndarray], DeployedState]
    begin: Callable[[State], PyTree]
    finish: Callable[..., PyTree]
    guard: Guard | None = None

    @property
    def knows_unseen(self) -> bool:
        """Whether the server alone can compute the model for an unseen domain."""
        return unseen_from_server(self.agreed.method, self.federation, self.placement)


class Sending(NamedTuple):
    """What a round begins with: the server's state after its own training, and what each participant is sent.

    who: the participants. sent: `[participants]`, leaves by path. loss: of the server's training; None without one.
    """

    server: PyTree
    who: np.ndarray
    sent: list[Leaves]
    loss: float | None


class DeployedRound(NamedTuple):
    """The result of a round: the new state, whether its numbers are finite, the loss of the server's training, and the
    epsilon spent where the server protects clients."""

    held: DeployedState
    finite: bool
    loss: float | None
    epsilon: float | None = None


def make_server(agreed: Agreed, own: OwnSamples) -> ServerPrograms:
    """The server's functions; nothing is compiled yet.

    Args:
      agreed: the method.
      own: the server's labelled samples; empty if it has none.

    Raises:
      UserError: a method whose server needs data that it does not have.
    """
    method, plan = agreed.method, agreed.plan
    federation = federation_of(agreed.terms, own)
    placement = placement_of(method, federation)
    check_init(method, federation, placement)
    shapes = traffic(method, federation)

    def whole(leaves: Mapping[str, Any], count: int) -> PyTree:
        """Rows with zeros for the leaves that only nodes hold, on which nothing here depends."""
        return with_leaves(shapes.context.client, leaves, lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype))

    def part(rows: PyTree) -> Leaves:
        return {path: leaf for path, leaf in by_path(rows).items() if path in placement.server}

    @jax.jit
    def first(seed: jax.Array, federation: Any) -> State:
        state: State = init_state(method._replace(keep_optimizer=False), federation, seed)
        return state._replace(clients=part(state.clients))

    @jax.jit
    def begin(state: State, federation: Any) -> PyTree:
        server, loss = train_server(method, plan, state, state.server, federation, last=False)
        who = participants(plan, state, federation.ids)
        rows = whole({path: leaf[who] for path, leaf in state.clients.items()}, len(who))
        sent = jax.lax.map(lambda row: method.send(server, row), rows) if jax.tree.leaves(rows) else None
        if sent is None:
            one = method.send(server, rows)
            sent = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(who), *leaf.shape)), one)
        return server, who, sent, loss

    def replayed(row: PyTree, round_: jax.Array) -> PyTree:
        """A client's new row, valid for the leaves that depend only on its old row and the round."""
        context: Context = jax.tree.map(zeros, shapes.context)._replace(client=row, round=round_)
        trained: Trained = jax.tree.map(zeros, shapes.trained)
        return method.finish(context, trained)[1]

    @jax.jit
    def finish(
        state: State,
        server: PyTree,
        who: jax.Array,
        lengths: jax.Array,
        messages: PyTree,
        arrived: jax.Array,
        root: jax.Array,
        federation: Any,
    ) -> PyTree:
        count = len(who)
        mine = {path: leaf[who] for path, leaf in state.clients.items()}
        new = by_path(jax.vmap(replayed, in_axes=(0, None))(whole(mine, count), state.round)) if mine else {}
        after = {path: new[path] if path in placement.replayed else leaf for path, leaf in mine.items()}
        # A missing client is treated like one whose update is not finite: its row stays, and its weight is zero.
        after = keep_rows(arrived, after, mine)
        weights = jnp.where(arrived, method.weights(lengths[who]), 0)
        messages = keep_rows(arrived, messages, jax.tree.map(jnp.zeros_like, messages))
        if plan.privacy and not plan.privacy.samples:
            # Who is missing adds nothing to the sum, whose divisor and noise stay those of all participants.
            messages = private_messages(plan.privacy, method, federation, messages, who, root, state.round)
        server, rows, _, loss, _ = server_round(
            method, plan, state, server, whole(after, count), messages, weights, federation
        )
        rows = {path: state.clients[path].at[who].set(leaf) for path, leaf in part(rows).items()}
        next_state = State(state.seed, state.round + 1, server, rows, {})
        return next_state, all_finite(server), loss

    def first_of(lengths: np.ndarray) -> DeployedState:
        counted = federation_of(agreed.terms, own, lengths=lengths)
        state = first(np.uint32(agreed.terms.config.seed), counted)
        return DeployedState(state, lengths.astype(np.int32), np.full(len(lengths), NEVER, np.int32))

    return ServerPrograms(
        agreed=agreed,
        shapes=shapes,
        placement=placement,
        federation=federation,
        first=first_of,
        begin=lambda state: begin(state, federation),
        finish=partial(finish, federation=federation),
    )


def zeros(leaf: Any) -> jax.Array:
    """Zeros of an array's shape and type."""
    return jnp.zeros(leaf.shape, leaf.dtype)


def begin_round(server: ServerPrograms, held: DeployedState) -> Sending:
    """Trains the server, if it trains before the clients, and computes what each participant is sent."""
    state, who, sent, loss = server.begin(held.state)
    stacked = by_path(jax.device_get(sent))
    who = np.asarray(who)
    each = [{path: leaf[place] for path, leaf in stacked.items()} for place in range(len(who))]
    return Sending(state, who, each, None if loss is None else float(loss))


def finish_round(
    server: ServerPrograms, held: DeployedState, sending: Sending, messages: Mapping[int, Leaves]
) -> DeployedRound:
    """The state after a round.

    Args:
      server: the server.
      held: its state before the round.
      sending: what the round began with.
      messages: those of the clients that replied, by client number; the others take no part in the round.

    Raises:
      UserError: a message that does not have this method's shapes, or the privacy budget is spent.
    """
    arrived = np.array([int(client) in messages for client in sending.who])
    nothing = jax.tree.map(blank, by_path(server.shapes.message))
    each = [
        checked_leaves(messages[int(client)], server.shapes.message, f"the message of client {client}")
        if here
        else nothing
        for client, here in zip(sending.who, arrived, strict=True)
    ]
    stacked = {path: np.stack([one[path] for one in each]) for path in nothing}
    messages_by_who = with_leaves(server.shapes.message, stacked, blank)
    privacy = server.agreed.plan.privacy
    if privacy and not privacy.samples and server.guard is None:
        raise UserError("the server has no secret for its noise; expected its guard, which run_rounds makes")
    root, release = held.state.seed, ""
    if server.guard:
        release = fingerprint(
            identity_words(server.agreed.terms), int(held.state.round), repr(arrived.tolist()), stacked
        )
        root = server.guard.root(release)
    state, finite, loss = server.finish(
        held.state, sending.server, sending.who, held.lengths, messages_by_who, arrived, root
    )
    epsilon = server.guard.charge(release) if server.guard else None
    accepted = held.accepted.copy()
    accepted[sending.who[arrived]] = int(held.state.round)
    told = sending.loss if loss is None else float(loss)
    return DeployedRound(DeployedState(state, held.lengths, accepted), bool(finite), told, epsilon)
