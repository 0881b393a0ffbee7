"""SCAFFOLD: local gradients corrected by control variates, against client drift.

    y_i    <- local epochs from x with gradients  g_i(y) + c - c_i
    c_i+    = c_i - c + mean of the corrected gradients over the K steps;    d_i = c_i+ - c_i
    x      <- x + sum_S p_i (y_i - x);    c <- c + sum_S p_i d_i

Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020, Algorithm 1, option
II: with plain SGD the mean of the corrected gradients *is* `(x - y_i) / (K eta_l)`, and c_i+ the mean of client i's own
gradients along its path. The mean needs no learning rate, so any local optimiser works: the gradient it receives is
already corrected. `control=displacement` is the paper's formula as printed.

p_i = 1/N as in the paper, or by samples; normalised over the round's clients for x and over all clients for c, so that
always `c = sum_i p_i c_i`. Control variates are over `params`; BatchNorm's statistics are averaged. Sending control
variates doubles the parameters in both directions. x predicts for an unseen domain.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import Context, Lens, Method, PyTree, ServerStep, Setup, Trained
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import FDSE_LEARNING_RATES, WITHIN_ROUNDS, hyper, learning_rate_factor
from fdgjax.methods.parts.optimizers import client_optimizer, sum_gradients
from fdgjax.methods.parts.requirements import SEVERAL_CLIENTS
from fdgjax.objectives import cross_entropy, shifted
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


@dataclasses.dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg's hyperparameters, with the paper's local optimiser.

    control: `gradients` (their mean) or `displacement` (`(x - y_i) / (K eta_l)`: for SGD without momentum).
    """

    client_optimizer: str = hyper(
        "sgd", examples=True, search=("sgd", "adam"), source="Karimireddy et al., Algorithm 1"
    )
    client_learning_rate: float = hyper(0.1, above=0, search=FDSE_LEARNING_RATES, source="FDSE, A7.4")
    client_clip: float = hyper(10.0, search=(0.0, 10.0), source="FDSE, A7.4: 10")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Karimireddy et al., Algorithm 1")
    control: str = hyper("gradients", search=("gradients", "displacement"), source="Karimireddy et al., option II")


class Control(NamedTuple):
    """What the server keeps besides x: the control variate c, and the sum of all clients' weights."""

    variate: PyTree
    total: jax.Array


def mean_corrected_gradient(rate: jax.Array, context: Context, trained: Trained) -> PyTree:
    """The mean of the corrected gradients that the optimiser was given, after clipping."""
    del rate, context
    return optax.tree.scale(1 / trained.steps.astype(jnp.float32), optax.tree.get(trained.optimizer, "gradient_sum"))


def displacement(rate: jax.Array, context: Context, trained: Trained) -> PyTree:
    """`(x - y_i) / (K eta_l)`, eta_l the learning rate of this round."""
    way = optax.tree.sub(context.received["params"], trained.variables["params"])
    return optax.tree.scale(1 / (trained.steps.astype(jnp.float32) * rate), way)


CONTROLS: Mapping[str, Callable[[jax.Array, Context, Trained], PyTree]] = {
    "gradients": mean_corrected_gradient,
    "displacement": displacement,
}


def scaffold(setup: Setup, h: Scaffold) -> Method:
    """FedAvg with control variates: c at the server, c_i in a client's row.

    Raises:
      UserError: an unknown control, or `displacement` with a learning rate that changes within a round.
    """
    corrected, base = lookup("control", h.control, CONTROLS), fedavg(setup, h)
    if corrected is displacement and h.client_schedule in WITHIN_ROUNDS:
        raise UserError(
            f"scaffold got control=displacement with client_schedule={h.client_schedule}, whose learning rate changes "
            "within a round; expected constant or cosine, or control=gradients"
        )

    def at_server(fresh: Fresh) -> Control:
        total = jnp.sum(base.weights(fresh.federation.train.length))
        return Control(optax.tree.zeros_like(fresh.server.variables["params"]), total)

    def correction(context: Context) -> PyTree:
        return optax.tree.sub(context.sent.more, context.client.more)

    def next_control(context: Context, trained: Trained) -> PyTree:
        rate = h.client_learning_rate * learning_rate_factor(h, context.round.astype(jnp.float32), setup.rounds)
        new = optax.tree.sub(corrected(rate, context, trained), correction(context))
        # A client without a step (fewer samples than a batch) has no gradient and keeps its control variate.
        return optax.tree.where(trained.steps > 0, new, context.client.more)

    extended = extend(
        base,
        server=at_server,
        sent=lambda server, row: server.more.variate,
        row=RowExtension(lambda fresh: optax.tree.zeros_like(fresh.models()["params"]), next_control),
        message=lambda context, trained, control: optax.tree.sub(control, context.client.more),
    )

    def aggregate(
        server: Extended, clients: Extended, messages: Extended, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        average, coefficients = extended.aggregate(server, clients, messages, weights)
        return Extended(average, weighted_sum(messages.more, weights / server.more.total)), coefficients

    def update(
        server: Extended, clients: Extended, step: Extended, server_step: ServerStep
    ) -> tuple[Extended, Extended]:
        server, clients = extended.update(server, clients, step.base, server_step)
        variate = optax.tree.add(server.more.variate, step.more)
        return server._replace(more=server.more._replace(variate=variate)), clients

    return extended._replace(
        objective=shifted(cross_entropy(setup.model), correction),
        optimizer=client_optimizer(h, setup.rounds, watch=sum_gradients()),
        aggregate=aggregate,
        update=update,
        # The updates include those of the control variates.
        updates=both(extended.updates),
    )


def both(updates: Lens) -> Lens:
    """The updates of the variables and of the control variates."""
    return Lens(
        lambda message: (updates.get(message), message.more),
        lambda message, part: updates.set(message, part[0])._replace(more=part[1]),
    )


ENTRY = Entry(
    "scaffold",
    Scaffold,
    scaffold,
    "gradients corrected by control variates (Karimireddy et al., 2020)",
    title="SCAFFOLD",
    needs=(SEVERAL_CLIENTS,),
)
