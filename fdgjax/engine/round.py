"""One round as one compiled program, traced once per experiment."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.stages import Wrapped

from fdgjax.aggregation.updates import largest_magnitude
from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import Context, Execution, Method, Prepared, PseudoLabels, PyTree, ServerStep
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.batched_hyper import BatchedHyper, over_methods
from fdgjax.engine.clients import jit, over_clients, repeat_of
from fdgjax.engine.local import Batching, LocalData, LocalTraining, samples_of, train_locally
from fdgjax.engine.privacy.dp_sgd import train_privately
from fdgjax.engine.privacy.noise import Privacy, private_messages
from fdgjax.engine.robustness.attacks import Attack, forge, is_hostile, poisoned
from fdgjax.engine.robustness.defences import Defence, Verdict, defend
from fdgjax.engine.unchanged import check_unchanged, check_weights
from fdgjax.utils.random import Purpose, choose_clients, stream


class State(NamedTuple):
    """Everything a run needs to continue exactly.

    seed: uint32, the root of every random stream.
    round: int32, rounds done.
    server: the method's server state.
    clients: the method's client state, `[clients, ...]`.
    optimizers: the local optimisers' states `[clients, ...]` where the method keeps them, else empty.

    The state of several seeds has one more axis before these, on every leaf.
    """

    seed: jax.Array
    round: jax.Array
    server: PyTree
    clients: PyTree
    optimizers: PyTree


class RoundPlan(NamedTuple):
    """How rounds are executed.

    batching: local epochs and minibatches.
    clients_per_round: participants that each round selects; 0 for all clients.
    execution: how clients are run, see `over_clients`.
    drop_nonfinite: leave a client whose update is not finite out of the round (its own state stays as it was); a
      defence always does. A round of which all are left out changes nothing but what the server trains itself.
    attack: what hostile clients do; None for nothing. defence: what is done about it; None for nothing.
    privacy: how much of a client, or of a sample, others may see; None for everything.
    """

    batching: Batching
    clients_per_round: int = 0
    execution: Execution = Execution()
    drop_nonfinite: bool = False
    attack: Attack | None = None
    defence: Defence | None = None
    privacy: Privacy | None = None


class RoundInfo(NamedTuple):
    """Diagnostics of a round; training does not depend on them.

    participants: positions of the clients that took part, `[participants]`.
    loss: each participant's mean training loss, NaN for one that trained on no sample. largest: the largest magnitude
      in its message and its new state. finite: whether its square fits float32.
    coefficients: the factors of the updates in the aggregation rule.
    pseudo_labels: the pseudo-labels, `[participants, longest]` in the order of each participant's training samples;
      None where there are none.
    server_finite: whether the server's new state is finite.
    server_loss: the mean training loss at the server; None where it does not train.
    verdict: what the defence did; None where there is none.
    """

    participants: jax.Array
    loss: jax.Array
    largest: jax.Array
    finite: jax.Array
    server_finite: jax.Array
    coefficients: PyTree
    pseudo_labels: PseudoLabels | None = None
    server_loss: jax.Array | None = None
    verdict: Verdict | None = None


SQUARED_OVERFLOWS = 1e19
"""Magnitude from which a client's numbers count as not finite: their squares, and so their norms, overflow float32."""


class Shared(NamedTuple):
    """The inputs of a round that all clients share."""

    server: PyTree
    federation: Federation
    seed: jax.Array
    round: jax.Array


class Participant(NamedTuple):
    """The inputs of a round that each client has of its own; `[participants, ...]` for all.

    client: its row. optimizer: its optimiser's state, where the method keeps it. id: of its random streams.
    samples: its training samples.
    """

    client: PyTree
    optimizer: PyTree
    id: jax.Array
    samples: Rows


def init_state(method: Method, federation: Federation, seed: int | jax.Array) -> State:
    """The state before the first round."""
    seed = jnp.asarray(seed, jnp.uint32)
    server, clients = method.init(stream(seed, Purpose.INIT), federation)
    optimizers: PyTree = {}
    if method.keep_optimizer:

        def fresh(client: PyTree) -> PyTree:
            return method.optimizer.init(method.start(method.send(server, client), client)["params"])

        optimizers = jax.vmap(fresh, axis_size=len(federation.ids))(clients)
    return State(seed, jnp.zeros((), jnp.int32), server, clients, optimizers)


def compile_init(method: Method | BatchedHyper, execution: Execution) -> Wrapped:
    """The jitted `init_state`, `(seed, federation) -> state`: of one seed (uint32) or, with a federation of several, of
    `[seeds]`."""

    def init(method: Method, seed: jax.Array, federation: Federation) -> State:
        return init_state(method, federation, seed)

    return jit(over_methods(init, method, execution.seed_axis), execution)


def compile_round(method: Method | BatchedHyper, plan: RoundPlan) -> Wrapped:
    """The jitted round, `(state, federation) -> (state, info)`.

    Where state and federation have a seed axis, it runs the round of all seeds, and its results have that axis. The
    state's buffers are donated, so the state passed in cannot be used again. State and data are replicated on every
    device; a client's message stays on its device until it is aggregated.
    """

    def one_round(method: Method, state: State, federation: Federation) -> tuple[State, RoundInfo]:
        return run_round(method, plan, state, federation)

    return jit(over_methods(one_round, method, plan.execution.seed_axis), plan.execution, donate_argnums=0)


def run_round(method: Method, plan: RoundPlan, state: State, federation: Federation) -> tuple[State, RoundInfo]:
    """Broadcast, local training, aggregation and server update for the selected clients; before or after these, the
    server's own training."""
    server, server_loss = train_server(method, plan, state, state.server, federation, last=False)
    who = participants(plan, state, federation.ids)
    pick = partial(jax.tree.map, lambda leaf: leaf[who])
    clients, optimizers = pick(state.clients), pick(state.optimizers)
    lengths = federation.train.length[who]
    steps = plan.batching.steps(lengths)
    messages, (new_clients, new_optimizers), loss, largest, pseudo_labels = over_clients(
        client_round(method, plan), plan.execution, steps
    )(
        Shared(server, federation, state.seed, state.round),
        Participant(clients, optimizers, federation.ids[who], pick(federation.train)),
    )
    if plan.attack:
        hostile = is_hostile(plan.attack, federation.ids[who], state.round)
        messages = forge(plan.attack, method, messages, hostile, stream(state.seed, Purpose.ATTACK, state.round))
        largest = jnp.maximum(largest, jax.vmap(largest_magnitude, axis_size=len(who))(messages))
    finite, weights = largest < SQUARED_OVERFLOWS, method.weights(lengths)
    check_weights(weights, lengths)
    if plan.drop_nonfinite or plan.defence:
        weights = jnp.where(finite, weights, 0)
        messages = keep_rows(finite, messages, optax.tree.zeros_like(messages))
        new_clients = keep_rows(finite, new_clients, clients)
        new_optimizers = keep_rows(finite, new_optimizers, optimizers)

    if plan.privacy and not plan.privacy.samples:
        messages = private_messages(
            plan.privacy, method, federation, messages, federation.ids[who], state.seed, state.round
        )
    server, new_clients, coefficients, last_loss, verdict = server_round(
        method, plan, state, server, new_clients, messages, weights, federation
    )
    put = partial(jax.tree.map, lambda all_rows, rows: all_rows.at[who].set(rows))
    after = State(
        state.seed,
        state.round + 1,
        server,
        put(state.clients, new_clients),
        put(state.optimizers, new_optimizers),
    )
    server_loss = last_loss if server_loss is None else server_loss
    return after, RoundInfo(
        who, loss, largest, finite, all_finite(server), coefficients, pseudo_labels, server_loss, verdict
    )


def server_round(
    method: Method,
    plan: RoundPlan,
    state: State,
    server: PyTree,
    clients: PyTree,
    messages: PyTree,
    weights: jax.Array,
    federation: Federation,
) -> tuple[PyTree, PyTree, PyTree, jax.Array | None, Verdict | None]:
    """The server's part of a round: its defence, aggregation, update, and its own training where that comes last.

    Args:
      method, plan, federation: as for `run_round`.
      state: before the round; its seed and round are read.
      server: the server's state, after its own training where that comes first.
      clients: the participants' new rows `[participants, ...]`. messages: what they sent. weights: `[participants]`.

    Returns:
      The server's new state, the participants' rows, the coefficients of the updates, the mean loss of the
      server's training (see `train_server`), and what the defence did.
    """
    verdict = None
    # On a GPU, TF32 products would show in the cosines and norms that decide the weights.
    with jax.default_matmul_precision("highest"):
        if plan.defence:
            messages, verdict = defend(method, plan.defence, messages, weights)
        aggregate, coefficients = method.aggregate(server, clients, messages, weights)
    server_step = ServerStep(state.round, stream(state.seed, Purpose.SERVER, state.round))
    moved = method.update(server, clients, aggregate, server_step)
    check_unchanged("update", (server, clients), moved, "[0] is the server's state, [1] the clients'")
    if plan.drop_nonfinite or plan.defence:
        # Else the server's momentum, or what a method keeps of earlier rounds, would move it without any update.
        counts = jnp.any(weights > 0)
        moved = optax.tree.where(counts, moved, (server, clients))
    server, clients = moved
    server, loss = train_server(method, plan, state, server, federation, last=True)
    return server, clients, coefficients, loss, verdict


def client_round(method: Method, plan: RoundPlan) -> Callable[..., PyTree]:
    """One client's part of a round: `(shared, participant) -> (message, (new row, new optimiser's state), mean loss,
    largest magnitude of message and new states, pseudo-labels)`."""

    repeat = repeat_of(plan.execution)

    def one_client(shared: Shared, participant: Participant) -> PyTree:
        server, federation, seed, round_ = shared
        client, optimizer, client_id, samples = participant
        data = LocalData(federation, samples.places, samples.length)
        sent = method.send(server, client)
        received = method.start(sent, client)
        context = Context(sent, client, received, round_)
        prepared = Prepared()
        if method.prepare:
            prepared = method.prepare(context, samples_of(data, plan.batching.batch_size, repeat))
            context = context._replace(aux=prepared.aux)
        begin = optimizer if method.keep_optimizer else method.optimizer.init(received["params"])
        key = stream(seed, Purpose.TRAINING, round_, client_id)
        objective = method.objective
        if plan.attack:
            objective = poisoned(plan.attack, objective, is_hostile(plan.attack, client_id, round_))
        training = LocalTraining(objective, method.optimizer, plan.batching, method.order, method.extra_batch, repeat)
        if plan.privacy and plan.privacy.samples:
            noise_key = stream(seed, Purpose.PRIVACY, round_, client_id)
            trained = train_privately(training, data, context, begin, key, noise_key=noise_key, privacy=plan.privacy)
        else:
            trained = train_locally(training, data._replace(pseudo_labels=prepared.pseudo_labels), context, begin, key)
        message, kept = method.finish(context, trained)
        check_unchanged("finish", client, kept, "a client's row")
        kept = (kept, trained.optimizer if method.keep_optimizer else optimizer)
        return message, kept, trained.loss, largest_magnitude((message, kept)), prepared.pseudo_labels

    return one_client


def train_server(
    method: Method, plan: RoundPlan, state: State, server: PyTree, federation: Federation, *, last: bool
) -> tuple[PyTree, jax.Array | None]:
    """The server's state after its own local epochs, and their mean loss; the unchanged state and None where the method
    has no such stage at this point of the round."""
    own = method.server_training
    if own is None or own.last is not last:
        return server, None
    variables = own.begin(server)
    context = Context(server, (), variables, state.round)
    training = LocalTraining(own.objective, own.optimizer, plan.batching, own.order, repeat=repeat_of(plan.execution))
    data = LocalData(federation, federation.server.places[0], federation.server.length[0])
    key = stream(state.seed, Purpose.SERVER_TRAINING, state.round)
    begin = own.optimizer.init(variables["params"])
    trained = train_locally(training, data, context, begin, key)
    after = own.finish(server, trained)
    check_unchanged("server_training.finish", server, after, "the server's state")
    return after, trained.loss


def participants(plan: RoundPlan, state: State, ids: jax.Array) -> jax.Array:
    """Positions of the clients that this round selects."""
    clients = len(ids)
    if plan.clients_per_round in (0, clients):
        return jnp.arange(clients)
    return choose_clients(stream(state.seed, Purpose.PARTICIPATION, state.round), ids, plan.clients_per_round)


def all_finite(tree: PyTree) -> jax.Array:
    """Whether every number of the tree is finite; true for an empty tree."""
    return jnp.isfinite(largest_magnitude(tree))
