"""A server that keeps one model: its state, its weights for clients, its step, and its own training."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Objective, Order, PyTree, ServerTraining, Variables
from fdgjax.utils.variables import flatten, merge, select

WEIGHTINGS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "samples": lambda counts: counts.astype(jnp.float32),
    "uniform": lambda counts: jnp.ones_like(counts, jnp.float32),
}
"""Aggregation weights from the clients' numbers of training samples, `[clients] -> [clients]`."""


class ServerState(NamedTuple):
    """The shared variables and the state of the server's optimiser over their `params`; if the server trains, also its
    own values of the variables that clients keep."""

    variables: Variables
    optimizer: PyTree


def take_step(server: ServerState, step: Variables, optimizer: optax.GradientTransformation) -> ServerState:
    """The shared variables moved by `step`: parameters through the server's optimiser, statistics directly."""
    moving = flatten(step)
    before = select(server.variables, lambda path: str(path in moving), "True")
    after = optax.apply_updates(before, step)
    if "params" not in after:
        return server._replace(variables=merge(server.variables, after))
    gradient = jax.tree.map(jnp.negative, step["params"])
    updates, state = optimizer.update(gradient, server.optimizer, before["params"])
    after |= {"params": optax.apply_updates(before["params"], updates)}
    return ServerState(merge(server.variables, after), state)


def make_server_training(
    objective: Objective, optimizer: optax.GradientTransformation, order: Order | None = None, last: bool = False
) -> ServerTraining:
    """Training of the server's variables, the shared ones and its own, on its labelled samples."""
    return ServerTraining(
        begin=lambda server: server.variables,
        objective=objective,
        optimizer=optimizer,
        finish=lambda server, trained: server._replace(variables=trained.variables),
        order=order,
        last=last,
    )
