"""FedDyn: local objectives changed from round to round so that their optima come to agree with the global one.

    w_i    <- local epochs from w on  L_i(w_i) - <h_i, w_i> + alpha/2 |w_i - w|^2
    h_i    <- h_i - alpha (w_i - w)
    h      <- h - alpha sum_S p_i (w_i - w);    w <- sum_S p_i w_i - h / alpha

Acar et al., "Federated learning based on dynamic regularization", ICLR 2021, Algorithm 1. A client at rest has
`h_i = grad L_i(w)`; then h, their mean, is zero.

p_i = 1/N as in the paper, or by samples; among the clients of a round for w, among all of them for h, so that h is
always `sum_i p_i h_i`. All of it is over `params`; BatchNorm's statistics are averaged. Nothing but models travels: the
server makes h of the updates. An unseen domain is predicted by w.

References:
  Search range: FDSE, A7.4.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import Context, Method, Moment, PyTree, Setup, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.errors import UserError
from fdgjax.methods.fedavg import FedAvg, Kept, Memory, Message, fedavg
from fdgjax.methods.fedavg import Server as Average
from fdgjax.methods.parts.hyper import FDSE_LEARNING_RATES, hyper
from fdgjax.objectives import cross_entropy, proximal, shifted
from fdgjax.variables import subtract


@dataclasses.dataclass(frozen=True)
class FedDyn(FedAvg):
    """FedAvg's hyperparameters, with the paper's local optimiser, and alpha, the strength of the regulariser."""

    client_optimizer: str = hyper("sgd", search=("sgd", "adam"), source="Acar et al., section 4")
    client_learning_rate: float = hyper(0.1, search=FDSE_LEARNING_RATES, source="Acar et al., section 4; FDSE, A7.4")
    client_clip: float = hyper(10.0, search=(0.0, 10.0), source="FDSE, A7.4: 10; Acar et al., official code: 10")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Acar et al., Algorithm 1")
    alpha: float = hyper(0.1, search=(0.001, 0.01, 0.03, 0.1), source="FDSE, A7.4")


class Server(NamedTuple):
    """w with its optimiser's state, h, and the sum of all clients' weights."""

    average: Average
    h: PyTree
    total: jax.Array


class Step(NamedTuple):
    """What the server makes of the clients' updates: their mean over the round, and their sum as shares of all."""

    average: Message
    everyone: PyTree


def feddyn(setup: Setup, h: FedDyn) -> Method:
    """FedAvg with a dynamic regulariser: h at the server, h_i in a client's row.

    Raises:
      UserError: alpha is not positive.
    """
    if h.alpha <= 0:
        raise UserError(f"method.alpha got {h.alpha}; expected a positive number, the paper's are 0.001 to 0.1")

    def next_h(context: Context, trained: Trained) -> PyTree:
        way = subtract(trained.variables["params"], context.received["params"])
        return jax.tree.map(lambda h_i, d: h_i - h.alpha * d, context.client.memory, way)

    zero = Memory(lambda variables: optax.tree.zeros_like(variables["params"]), next_h)
    dynamic = shifted(cross_entropy(setup.model), lambda context: jax.tree.map(jnp.negative, context.client.memory))
    base = fedavg(setup, h, objective=proximal(dynamic, h.alpha), memory=zero)

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        server, clients = base.init(key, federation)
        total = jnp.sum(base.weights(federation.train.length))
        return Server(server, optax.tree.zeros_like(server.variables["params"]), total), clients

    def send(server: Server, client: Kept) -> Variables:
        return base.send(server.average, client)

    def aggregate(server: Server, clients: Kept, messages: Message, weights: jax.Array) -> tuple[Step, PyTree]:
        average, coefficients = base.aggregate(server.average, clients, messages, weights)
        return Step(average, weighted_sum(messages.update["params"], weights / server.total)), coefficients

    def update(server: Server, clients: Kept, step: Step, moment: Moment) -> tuple[Server, Kept]:
        new_h = jax.tree.map(lambda old, d: old - h.alpha * d, server.h, step.everyone)
        mean = step.average.update
        corrected = jax.tree.map(lambda d, over_all: d - over_all / h.alpha, mean["params"], new_h)
        move = step.average._replace(update={**mean, "params": corrected})
        average, clients = base.update(server.average, clients, move, moment)
        return Server(average, new_h, server.total), clients

    return base._replace(
        init=init,
        send=send,
        aggregate=aggregate,
        update=update,
        predict=lambda server, client: base.predict(server.average, client),
        unseen=lambda server, clients: base.unseen(server.average, clients),
    )
