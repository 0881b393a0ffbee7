"""FedDyn: a dynamic regulariser that aligns the clients' local optima with the global one.

    w_i    <- local epochs from w on  L_i(w_i) - <h_i, w_i> + alpha/2 |w_i - w|^2
    h_i    <- h_i - alpha (w_i - w)
    h      <- h - alpha sum_S p_i (w_i - w);    w <- sum_S p_i w_i - h / alpha

Acar et al., "Federated learning based on dynamic regularization", ICLR 2021, Algorithm 1. At a fixed
point `h_i = grad L_i(w)`, and h, their mean, is zero.

p_i = 1/N as in the paper, or by samples; normalised over the round's clients for w and over all clients for h, so that
always `h = sum_i p_i h_i`. Both terms are over `params`; BatchNorm's statistics are averaged. Only models are sent: the
server computes h from the updates. w predicts for an unseen domain.

References:
  Search range: FDSE, A7.4.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import Context, Method, PyTree, ServerStep, Setup, Trained
from fdgjax.methods.fedavg import FedAvg, Message, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import FDSE_LEARNING_RATES, hyper
from fdgjax.objectives import cross_entropy, proximal, shifted
from fdgjax.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class FedDyn(FedAvg):
    """FedAvg's hyperparameters, with the paper's local optimiser, and the regulariser's.

    alpha: strength of the regulariser.
    """

    client_optimizer: str = hyper("sgd", examples=True, search=("sgd", "adam"), source="Acar et al., section 4")
    client_learning_rate: float = hyper(
        0.1, above=0, search=FDSE_LEARNING_RATES, source="Acar et al., section 4; FDSE, A7.4"
    )
    client_clip: float = hyper(10.0, search=(0.0, 10.0), source="FDSE, A7.4: 10; Acar et al., official code: 10")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Acar et al., Algorithm 1")
    alpha: float = hyper(0.1, search=(0.001, 0.01, 0.03, 0.1), source="FDSE, A7.4")


class Regulariser(NamedTuple):
    """What the server keeps besides w: h, and the sum of all clients' weights."""

    h: PyTree
    total: jax.Array


def feddyn(setup: Setup, h: FedDyn) -> Method:
    """FedAvg with a dynamic regulariser: h at the server, h_i in a client's row.

    Raises:
      UserError: alpha is not positive.
    """
    if h.alpha <= 0:
        raise UserError(f"method.alpha got {h.alpha}; expected a positive number, the paper's are 0.001 to 0.1")

    base = fedavg(setup, h)

    def at_server(fresh: Fresh) -> Regulariser:
        zero = optax.tree.zeros_like(fresh.server.variables["params"])
        return Regulariser(zero, jnp.sum(base.weights(fresh.federation.train.length)))

    def next_h(context: Context, trained: Trained) -> PyTree:
        way = optax.tree.sub(trained.variables["params"], context.received["params"])
        return jax.tree.map(lambda h_i, d: h_i - h.alpha * d, context.client.more, way)

    at_row = RowExtension(lambda fresh: optax.tree.zeros_like(fresh.models()["params"]), next_h)
    extended = extend(base, server=at_server, row=at_row)

    def aggregate(
        server: Extended, clients: Extended, messages: Message, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        average, coefficients = extended.aggregate(server, clients, messages, weights)
        return Extended(average, weighted_sum(messages.update["params"], weights / server.more.total)), coefficients

    def update(
        server: Extended, clients: Extended, step: Extended, server_step: ServerStep
    ) -> tuple[Extended, Extended]:
        new_h = jax.tree.map(lambda old, d: old - h.alpha * d, server.more.h, step.more)
        mean = step.base.update
        corrected = jax.tree.map(lambda d, over_all: d - over_all / h.alpha, mean["params"], new_h)
        move = step.base._replace(update={**mean, "params": corrected})
        server, clients = extended.update(server, clients, move, server_step)
        return server._replace(more=server.more._replace(h=new_h)), clients

    linear = shifted(cross_entropy(setup.model), lambda context: jax.tree.map(jnp.negative, context.client.more))
    return extended._replace(objective=proximal(linear, h.alpha), aggregate=aggregate, update=update)


ENTRY = Entry("feddyn", FedDyn, feddyn, "dynamic regularisation (Acar et al., 2021)", title="FedDyn")
