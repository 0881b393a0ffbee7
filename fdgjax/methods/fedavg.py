"""FedAvg: local epochs, then the weighted mean of the clients' updates.

    w_i <- local epochs from w;    d = sum_i p_i (w_i - w);    w <- w + d

with p_i proportional to the number of training samples, or uniform. Any optax optimiser can take -d as a gradient
instead (Reddi et al., "Adaptive federated optimization", 2021); plain SGD with learning rate 1 is FedAvg.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017, Algorithm 1.
Search ranges: hFedF v2, Table 10.

Most other methods start from this one. By a variable's label: `shared` leaves are aggregated by a rule, `personal` ones
are exchanged for a client's own mixture, `local` ones stay in the client's row; so keeping something at the clients is
a matter of labels (see `local.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import mean
from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import (
    Adaptation,
    Context,
    Method,
    Moment,
    Objective,
    Order,
    Prepared,
    PyTree,
    Rule,
    Samples,
    Setup,
    Stage,
    Trained,
    Variables,
)
from fdgjax.data.federation import Federation
from fdgjax.errors import UserError
from fdgjax.methods.parts.hyper import ClientHyper, client_optimizer, hyper, optimizer
from fdgjax.objectives import cross_entropy
from fdgjax.registry import lookup
from fdgjax.variables import flatten, merge, select, subtract

WEIGHTINGS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "samples": lambda counts: counts.astype(jnp.float32),
    "uniform": lambda counts: jnp.ones_like(counts, jnp.float32),
}

UNSEEN: Mapping[str, Callable[[PyTree], PyTree]] = {
    "each": lambda kept: kept,
    "mean": lambda kept: jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0, keepdims=True), kept),
    "server": lambda kept: jax.tree.map(lambda leaf: leaf[:0], kept),
}
"""What an unseen domain gets of the variables that clients keep: each client's, one mean, or none of them, where the
server trains and has its own, `[models, ...]`."""

Personalise = Callable[[PyTree, jax.Array], tuple[PyTree, PyTree]]


class Memory(NamedTuple):
    """What a client's row holds from round to round besides variables of its model.

    begin: `(initial variables) -> memory`, of one client.
    after: `(context, trained) -> memory`; the former one is `context.client.memory`.
    """

    begin: Callable[[Variables], PyTree]
    after: Callable[[Context, Trained], PyTree]


NOTHING = Memory(begin=lambda variables: (), after=lambda context, trained: ())


@dataclasses.dataclass(frozen=True)
class FedAvg(ClientHyper):
    """FedAvg's hyperparameters; `weighting` is `samples` or `uniform`.

    unseen: where clients keep variables of their own, an unseen domain is predicted by `each` client's model (their
      accuracies are averaged), by one with the `mean` of what they keep, or by the `server`'s own, where it trains.
    """

    weighting: str = hyper("samples", search=("samples", "uniform"), source="McMahan et al., Algorithm 1")
    server_optimizer: str = hyper("sgd", search=("sgd", "adam", "yogi"), source="Reddi et al., Table 1")
    server_learning_rate: float = hyper(1.0, search=(1.0, 1e-1, 1e-2), source="1 is FedAvg")
    server_momentum: float = hyper(0.0, search=(0.0, 0.9), source="Reddi et al., appendix D")
    unseen: str = hyper("each", search=("each", "mean", "server"), source="docs/deviations.md")


class Server(NamedTuple):
    """The shared variables and the state of the server's optimiser over their `params`; where the server trains, also
    its own values of the variables that clients keep."""

    variables: Variables
    optimizer: PyTree


class Kept(NamedTuple):
    """A client's row: its `personal` variables, which the server mixes, the `local` ones, which it never sees, and
    whatever `memory` the method has for it."""

    personal: Variables
    local: Variables
    memory: PyTree = ()


class Message(NamedTuple):
    """What a client sends: updates of the shared variables, and the personal ones themselves."""

    update: Variables
    personal: Variables


def everything_shared(path: str) -> str:
    """FedAvg's labels: one value for all."""
    del path
    return "shared"


def keep_personal(personal: PyTree, weights: jax.Array) -> tuple[PyTree, PyTree]:
    """Every client keeps its own."""
    del weights
    return personal, {}


def fedavg(
    setup: Setup,
    h: FedAvg,
    *,
    objective: Objective | None = None,
    label: Callable[[str], str] = everything_shared,
    rule: Rule = mean,
    personalise: Personalise = keep_personal,
    server_optimizer: optax.GradientTransformation | None = None,
    adapt: Adaptation | None = None,
    memory: Memory = NOTHING,
    prepare: Callable[[Context, Samples], Prepared] | None = None,
    stage: Stage | None = None,
) -> Method:
    """FedAvg, and the parts other methods replace.

    Args:
      setup: what the method is built for.
      h: hyperparameters.
      objective: the local objective; cross-entropy by default.
      label: the fate of each variable by its path.
      rule: aggregates the updates of the shared variables, statistics included.
      personalise: mixes the personal variables, `(stacked, weights) -> (stacked, coefficients)`.
      server_optimizer: any optax transformation, in place of the one `h` names.
      adapt: label-free adaptation to an unseen domain.
      memory: what clients' rows hold besides variables.
      prepare: what a client works out before it trains.
      stage: the server's own training (see `server_stage`).

    Raises:
      UserError: an unknown name in `h`, or `unseen="server"` for a server that has no complete model.
    """
    server_optimizer = server_optimizer or optimizer(
        h.server_optimizer, learning_rate=h.server_learning_rate, momentum=h.server_momentum
    )
    unseen_from = lookup("unseen", h.unseen, UNSEEN)
    if h.unseen == "server" and has_own(setup, label) and stage is None:
        raise UserError(
            "method.unseen got 'server', but the server does not train and lacks what clients keep; expected each or "
            "mean"
        )

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        variables = setup.model.init(key)
        shared, many = select(variables, label, "shared"), len(federation.ids)
        own = Kept(select(variables, label, "personal"), select(variables, label, "local"), memory.begin(variables))
        clients = jax.tree.map(lambda leaf: jnp.stack([leaf] * many), own)
        at_server = variables if stage else shared
        return Server(at_server, server_optimizer.init(shared.get("params", {}))), clients

    def send(server: Server, client: Kept) -> Variables:
        return merge(server.variables, client.personal)

    def start(sent: Variables, client: Kept) -> Variables:
        return merge(sent, client.local)

    def finish(context: Context, trained: Trained) -> tuple[Message, Kept]:
        after = trained.variables
        update = subtract(select(after, label, "shared"), select(context.sent, label, "shared"))
        personal = select(after, label, "personal")
        kept = Kept(personal, select(after, label, "local"), memory.after(context, trained))
        return Message(update, personal), kept

    def aggregate(
        server: Server, clients: Kept, messages: Message, weights: jax.Array
    ) -> tuple[Message, dict[str, PyTree]]:
        del server
        update, coefficients = rule(messages.update, weights)
        personal, mixture = personalise(messages.personal, weights)
        # A client that was left out of the round keeps what it had.
        personal = keep_rows(weights > 0, personal, clients.personal)
        return Message(update, personal), {"weights": coefficients, "personal": mixture}

    def update(server: Server, clients: Kept, step: Message, moment: Moment) -> tuple[Server, Kept]:
        del moment
        return take_step(server, step.update, server_optimizer), clients._replace(personal=step.personal)

    def predict(server: Server, client: Kept) -> Variables:
        return start(send(server, client), client)

    def unseen(server: Server, clients: Kept) -> Variables:
        kept = unseen_from(clients)
        if not sum(leaf.size for leaf in jax.tree.leaves((kept.personal, kept.local))):
            return jax.tree.map(lambda leaf: leaf[None], server.variables)
        return jax.vmap(predict, in_axes=(None, 0))(server, kept)

    return Method(
        init=init,
        send=send,
        start=start,
        objective=objective or cross_entropy(setup.model),
        optimizer=client_optimizer(h, setup.rounds),
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=predict,
        unseen=unseen,
        label=label,
        weights=lookup("weighting", h.weighting, WEIGHTINGS),
        adapt=adapt,
        prepare=prepare,
        stage=stage,
        trained=(lambda variables: variables) if has_own(setup, label) else None,
    )


def has_own(setup: Setup, label: Callable[[str], str]) -> bool:
    """Whether clients have variables that others do not have."""
    shapes = jax.eval_shape(setup.model.init, jax.random.key(0))
    return any(label(path) != "shared" for path in flatten(shapes))


def take_step(server: Server, step: Variables, server_optimizer: optax.GradientTransformation) -> Server:
    """The shared variables moved by `step`: parameters through the server's optimiser, statistics as they are."""
    moving = flatten(step)
    before = select(server.variables, lambda path: str(path in moving), "True")
    after = optax.apply_updates(before, step)
    if "params" not in after:
        return server._replace(variables=merge(server.variables, after))
    gradient = jax.tree.map(jnp.negative, step["params"])
    updates, state = server_optimizer.update(gradient, server.optimizer, before["params"])
    after |= {"params": optax.apply_updates(before["params"], updates)}
    return Server(merge(server.variables, after), state)


def server_stage(
    objective: Objective, optimizer: optax.GradientTransformation, order: Order | None = None, last: bool = False
) -> Stage:
    """Training of the server's variables, the shared ones and its own, on its labelled samples."""
    return Stage(
        begin=lambda server: server.variables,
        objective=objective,
        optimizer=optimizer,
        finish=lambda server, trained: server._replace(variables=trained.variables),
        order=order,
        last=last,
    )
