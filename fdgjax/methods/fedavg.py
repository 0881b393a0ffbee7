"""FedAvg: local epochs, then the weighted mean of the clients' updates.

    w_i <- local epochs from w;    d = sum_i p_i (w_i - w);    w <- w + d

with p_i proportional to the number of training samples, or uniform. Any optax optimiser can take -d as a gradient
instead; plain SGD with learning rate 1 is FedAvg, and `adagrad`, `adam` and `yogi` are FedAdagrad, FedAdam and FedYogi
(Reddi et al., "Adaptive federated optimization", 2021, Algorithm 2).

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017, Algorithm 1.
Search ranges: hFedF v2, Table 10.

Most other methods build on this one. A variable's label decides its treatment: `shared` variables are aggregated by a
rule, `personal` ones are sent and each client receives its own mixture of them, `local` ones stay in the client's row
(see `local.py`).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import mean
from fdgjax.aggregation.weighting import keep_rows
from fdgjax.contract import (
    Context,
    LabelFn,
    Lens,
    Method,
    Objective,
    PyTree,
    Rule,
    ServerStep,
    ServerTraining,
    Setup,
    Trained,
    Variables,
)
from fdgjax.data.federation import Federation
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import ClientHyper, When, hyper, momentum_of
from fdgjax.methods.parts.optimizers import SECOND_MOMENTS, adaptive, client_optimizer, optimizer
from fdgjax.methods.parts.server_state import WEIGHTINGS, ServerState, take_step
from fdgjax.methods.parts.setting_presets import official_fdse
from fdgjax.methods.parts.sharing import (
    ClientVariables,
    Personalise,
    everything_shared,
    has_own,
    keep_personal,
    unseen_rule,
)
from fdgjax.objectives import cross_entropy
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import merge, select


@dataclasses.dataclass(frozen=True)
class FedAvg(ClientHyper):
    """FedAvg's hyperparameters.

    weighting: of the clients' updates, by their numbers of training `samples` or `uniform`.
    server_optimizer: any optax optimiser that takes a learning rate; it takes the aggregate's negative as a gradient.
      `adagrad`, `adam` and `yogi` are Reddi et al.'s (`fdgjax.methods.parts.optimizers.adaptive`), not optax's.
    server_learning_rate: of the server's optimiser. server_momentum: for optimisers that take one.
    server_epsilon: tau of `adagrad`, `adam` and `yogi`.
    unseen: which model predicts for an unseen domain if clients keep variables of their own: `each` client's (the
      accuracies are averaged), one with the `mean` of these variables, or, if the server trains, the `server`'s.
    """

    weighting: str = hyper("samples", search=("samples", "uniform"), source="McMahan et al., Algorithm 1")
    server_optimizer: str = hyper("sgd", examples=True, search=("sgd", "adam", "yogi"), source="Reddi et al., Table 1")
    server_learning_rate: float = hyper(1.0, above=0, search=(1.0, 1e-1, 1e-2), source="1 is FedAvg")
    server_momentum: float = hyper(
        0.0, most=1, search=(0.0, 0.9), source="Reddi et al., appendix D", when=momentum_of("server_optimizer")
    )
    server_epsilon: float = hyper(
        1e-3,
        above=0,
        search=(1e-1, 1e-2, 1e-3, 1e-4),
        source="Reddi et al.: 1e-3",
        when=When(lambda h: h.server_optimizer in SECOND_MOMENTS),
    )
    unseen: str = hyper("each", search=("each", "mean", "server"), source="docs/deviations.md")


def server_optimizer(h: FedAvg) -> optax.GradientTransformation:
    """The server's optimiser.

    Raises:
      UserError: an unknown one, or a momentum for one that takes none.
    """
    name, rate = h.server_optimizer, h.server_learning_rate
    if name in SECOND_MOMENTS and not h.server_momentum:
        return adaptive(name, learning_rate=rate, epsilon=h.server_epsilon)
    return optimizer(name, learning_rate=rate, momentum=h.server_momentum)


class Message(NamedTuple):
    """What a client sends: updates of the shared variables, and the personal ones themselves."""

    update: Variables
    personal: Variables


def fedavg(
    setup: Setup,
    h: FedAvg,
    *,
    objective: Objective | None = None,
    label: LabelFn = everything_shared,
    rule: Rule = mean,
    personalise: Personalise = keep_personal,
    server_training: ServerTraining | None = None,
) -> Method:
    """FedAvg, with the parts that other methods replace.

    Args:
      setup: what the method is built for.
      h: hyperparameters.
      objective: the local objective; cross-entropy by default.
      label: `path -> shared, personal or local`, for each variable.
      rule: aggregates the updates of the shared variables, statistics included.
      personalise: mixes the personal variables.
      server_training: the server's own training (see `make_server_training`).

    Raises:
      UserError: an unknown value in `h`, or `unseen="server"` for a server that has no complete model.
    """
    at_server = server_optimizer(h)
    own = has_own(setup.model, label)
    unseen_from = unseen_rule(h.unseen, own=own, server_trains=server_training is not None)

    def init(key: jax.Array, federation: Federation) -> tuple[ServerState, ClientVariables]:
        variables = setup.model.init(key)
        shared, kept = (
            select(variables, label, "shared"),
            (select(variables, label, one) for one in ClientVariables._fields),
        )
        clients = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(federation.ids)), ClientVariables(*kept))
        return ServerState(variables if server_training else shared, at_server.init(shared.get("params", {}))), clients

    def send(server: ServerState, client: ClientVariables) -> Variables:
        return merge(server.variables, client.personal)

    def start(sent: Variables, client: ClientVariables) -> Variables:
        return merge(sent, client.local)

    def finish(context: Context, trained: Trained) -> tuple[Message, ClientVariables]:
        shared, personal, local = (
            select(trained.variables, label, one) for one in ("shared", *ClientVariables._fields)
        )
        return Message(optax.tree.sub(shared, select(context.sent, label, "shared")), personal), ClientVariables(
            personal, local
        )

    def aggregate(
        server: ServerState, clients: ClientVariables, messages: Message, weights: jax.Array
    ) -> tuple[Message, PyTree]:
        update, coefficients = rule(messages.update, weights)
        personal, mixture = personalise(messages.personal, weights)
        # A client outside the round keeps its personal variables.
        personal = keep_rows(weights > 0, personal, clients.personal)
        return Message(update, personal), {"weights": coefficients, "personal": mixture}

    def update(
        server: ServerState, clients: ClientVariables, step: Message, server_step: ServerStep
    ) -> tuple[ServerState, ClientVariables]:
        return take_step(server, step.update, at_server), clients._replace(personal=step.personal)

    def predict(server: ServerState, client: ClientVariables) -> Variables:
        return start(send(server, client), client)

    def unseen(server: ServerState, clients: ClientVariables) -> Variables:
        kept = unseen_from(clients)
        if not sum(leaf.size for leaf in jax.tree.leaves(kept)):
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
        server_training=server_training,
        trained=(lambda variables: variables) if own else None,
        updates=Lens(lambda message: message.update, lambda message, update: message._replace(update=update)),
        averaged=True,
        keep_optimizer=h.keep_optimizer,
    )


ENTRY = Entry(
    "fedavg",
    FedAvg,
    fedavg,
    "weighted mean, any server optimiser (McMahan et al., 2017)",
    title="FedAvg",
    presets=official_fdse(pacs={"client_learning_rate": 0.1}),
)
