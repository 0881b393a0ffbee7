"""SCAFFOLD: local gradients corrected by control variates, so that clients with other data do not drift apart.

    y_i    <- local epochs from x with gradients  g_i(y) + c - c_i
    c_i+    = c_i - c + mean of the corrected gradients over the K steps;    d_i = c_i+ - c_i
    x      <- x + sum_S p_i (y_i - x);    c <- c + sum_S p_i d_i

Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020, Algorithm 1, option
II: with plain SGD the mean of the corrected gradients *is* `(x - y_i) / (K eta_l)`, and c_i+ the mean of client i's own
gradients along its path. The mean needs no learning rate, so that any local optimiser will do: the correction is in the
gradient it is given. `control=displacement` is the paper's formula as it is printed.

p_i = 1/N as in the paper, or by samples; among the clients of a round for x, among all of them for c, so that c is
always `sum_i p_i c_i`. Control variates are over `params`; BatchNorm's statistics are averaged. They travel: twice the
parameters, in both directions. An unseen domain is predicted by x.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation.weighting import weighted_sum
from fdgjax.contract import Context, Method, Moment, PyTree, Setup, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.methods.fedavg import FedAvg, Kept, Memory, fedavg
from fdgjax.methods.fedavg import Message as Update
from fdgjax.methods.fedavg import Server as Average
from fdgjax.methods.parts.hyper import FDSE_LEARNING_RATES, client_optimizer, hyper, learning_rate_factor, sum_gradients
from fdgjax.objectives import cross_entropy, shifted
from fdgjax.registry import lookup
from fdgjax.variables import subtract


@dataclasses.dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg's hyperparameters, with the paper's local optimiser.

    control: `gradients` (their mean) or `displacement` (`(x - y_i) / (K eta_l)`: for SGD without momentum).
    """

    client_optimizer: str = hyper("sgd", search=("sgd", "adam"), source="Karimireddy et al., Algorithm 1")
    client_learning_rate: float = hyper(0.1, search=FDSE_LEARNING_RATES, source="FDSE, A7.4")
    client_clip: float = hyper(10.0, search=(0.0, 10.0), source="FDSE, A7.4: 10")
    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Karimireddy et al., Algorithm 1")
    control: str = hyper("gradients", search=("gradients", "displacement"), source="Karimireddy et al., option II")


class Server(NamedTuple):
    """x with its optimiser's state, the control variate c, and the sum of all clients' weights."""

    average: Average
    control: PyTree
    total: jax.Array


class Sent(NamedTuple):
    """x and c."""

    variables: Variables
    control: PyTree


class Message(NamedTuple):
    """A client's `y_i - x` and d_i; and what the server makes of all of them."""

    average: Update
    control: PyTree


def mean_gradient(rate: jax.Array, context: Context, trained: Trained) -> PyTree:
    """The mean of the corrected gradients that the optimiser was given, after clipping."""
    del rate, context
    return optax.tree.scale(1 / trained.steps.astype(jnp.float32), optax.tree.get(trained.optimizer, "gradient_sum"))


def displacement(rate: jax.Array, context: Context, trained: Trained) -> PyTree:
    """`(x - y_i) / (K eta_l)`, eta_l the learning rate of this round."""
    way = subtract(context.received["params"], trained.variables["params"])
    return optax.tree.scale(1 / (trained.steps.astype(jnp.float32) * rate), way)


CONTROLS: Mapping[str, Callable[[jax.Array, Context, Trained], PyTree]] = {
    "gradients": mean_gradient,
    "displacement": displacement,
}


def scaffold(setup: Setup, h: Scaffold) -> Method:
    """FedAvg with control variates: c at the server, c_i in a client's row."""
    corrected = lookup("control", h.control, CONTROLS)

    def correction(context: Context) -> PyTree:
        return subtract(context.sent.control, context.client.memory)

    def next_control(context: Context, trained: Trained) -> PyTree:
        rate = h.client_learning_rate * learning_rate_factor(h, context.round, setup.rounds)
        new = subtract(corrected(rate, context, trained), correction(context))
        # Without a single step (fewer samples than a batch) there was no gradient to go by.
        return jax.tree.map(lambda a, b: jnp.where(trained.steps > 0, a, b), new, context.client.memory)

    # What follows the zeros needs c, which FedAvg knows nothing of: see `finish`.
    zero = Memory(lambda variables: optax.tree.zeros_like(variables["params"]), lambda context, trained: ())
    base = fedavg(setup, h, objective=shifted(cross_entropy(setup.model), correction), memory=zero)

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Kept]:
        server, clients = base.init(key, federation)
        control = optax.tree.zeros_like(server.variables["params"])
        return Server(server, control, jnp.sum(base.weights(federation.train.length))), clients

    def send(server: Server, client: Kept) -> Sent:
        return Sent(base.send(server.average, client), server.control)

    def start(sent: Sent, client: Kept) -> Variables:
        return base.start(sent.variables, client)

    def finish(context: Context, trained: Trained) -> tuple[Message, Kept]:
        message, kept = base.finish(context._replace(sent=context.sent.variables), trained)
        control = next_control(context, trained)
        return Message(message, subtract(control, context.client.memory)), kept._replace(memory=control)

    def aggregate(server: Server, clients: Kept, messages: Message, weights: jax.Array) -> tuple[Message, PyTree]:
        average, coefficients = base.aggregate(server.average, clients, messages.average, weights)
        return Message(average, weighted_sum(messages.control, weights / server.total)), coefficients

    def update(server: Server, clients: Kept, step: Message, moment: Moment) -> tuple[Server, Kept]:
        average, clients = base.update(server.average, clients, step.average, moment)
        return Server(average, optax.tree.add(server.control, step.control), server.total), clients

    return base._replace(
        init=init,
        send=send,
        start=start,
        optimizer=client_optimizer(h, setup.rounds, watch=sum_gradients()),
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=lambda server, client: base.predict(server.average, client),
        unseen=lambda server, clients: base.unseen(server.average, clients),
    )
