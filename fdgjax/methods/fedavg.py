"""FedAvg: local epochs, then the weighted mean of the clients' updates.

    w_i <- local epochs from w;    d = sum_i p_i (w_i - w);    w <- w + d

with p_i proportional to the number of training samples, or uniform. Any optax optimiser can take -d as a gradient
instead (Reddi et al., "Adaptive federated optimization", 2021); plain SGD with learning rate 1 is FedAvg.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017, Algorithm 1.
Search ranges: hFedF v2, Table 10.

Every other method starts from this one. By a variable's label: `shared` leaves are averaged, `local` leaves stay in
the client's row; so keeping something at the clients is a matter of labels (see `local.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import mean
from fdgjax.contract import Context, Method, Moment, Objective, PyTree, Setup, Variables
from fdgjax.federation import Federation
from fdgjax.methods.hyper import ClientHyper, client_optimizer, hyper, optimizer
from fdgjax.objectives import cross_entropy
from fdgjax.registry import lookup
from fdgjax.variables import merge, select, subtract

WEIGHTINGS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "samples": lambda counts: counts.astype(jnp.float32),
    "uniform": lambda counts: jnp.ones_like(counts, jnp.float32),
}


@dataclasses.dataclass(frozen=True)
class FedAvg(ClientHyper):
    """FedAvg's hyperparameters; `weighting` is `samples` or `uniform`."""

    weighting: str = hyper("samples", search=("samples", "uniform"), source="McMahan et al., Algorithm 1")
    server_optimizer: str = hyper("sgd", search=("sgd", "adam", "yogi"), source="Reddi et al., Table 1")
    server_learning_rate: float = hyper(1.0, search=(1.0, 1e-1, 1e-2), source="1 is FedAvg")
    server_momentum: float = hyper(0.0, search=(0.0, 0.9), source="Reddi et al., appendix D")


class Server(NamedTuple):
    """The shared variables and the state of the server's optimiser over their `params`."""

    variables: Variables
    optimizer: PyTree


def everything_shared(path: str) -> str:
    """FedAvg's labels: one value for all."""
    del path
    return "shared"


def fedavg(
    setup: Setup,
    h: FedAvg,
    *,
    objective: Objective | None = None,
    label: Callable[[str], str] = everything_shared,
    server_optimizer: optax.GradientTransformation | None = None,
) -> Method:
    """FedAvg, and the parts other methods replace.

    Args:
      setup: what the method is built for.
      h: hyperparameters.
      objective: the local objective; cross-entropy by default.
      label: the fate of each variable by its path; `shared` or `local`.
      server_optimizer: any optax transformation, in place of the one `h` names.
    """
    server_optimizer = server_optimizer or optimizer(
        h.server_optimizer, learning_rate=h.server_learning_rate, momentum=h.server_momentum
    )

    def init(key: jax.Array, federation: Federation) -> tuple[Server, Variables]:
        variables = setup.model.init(key)
        shared = select(variables, label, "shared")
        many = len(federation.ids)
        clients = jax.tree.map(lambda leaf: jnp.stack([leaf] * many), select(variables, label, "local"))
        return Server(shared, server_optimizer.init(shared.get("params", {}))), clients

    def start(server: Server, client: Variables) -> Variables:
        return merge(server.variables, client)

    def finish(context: Context, trained: Variables) -> tuple[Variables, Variables]:
        update = subtract(select(trained, label, "shared"), select(context.received, label, "shared"))
        return update, select(trained, label, "local")

    def aggregate(
        server: Server, clients: PyTree, updates: PyTree, weights: jax.Array
    ) -> tuple[PyTree, dict[str, PyTree]]:
        del server, clients
        update, coefficients = mean(updates, weights)
        return update, {"weights": coefficients}

    def update(server: Server, clients: PyTree, step: Variables, moment: Moment) -> tuple[Server, PyTree]:
        del moment
        variables = optax.apply_updates(server.variables, step)
        if "params" not in variables:
            return server._replace(variables=variables), clients
        # Statistics are averaged as they are; only parameters go through the server's optimiser.
        params = server.variables["params"]
        gradient = jax.tree.map(jnp.negative, step["params"])
        updates, state = server_optimizer.update(gradient, server.optimizer, params)
        return Server(variables | {"params": optax.apply_updates(params, updates)}, state), clients

    def unseen(server: Server, clients: Variables) -> Variables:
        if not clients:
            return jax.tree.map(lambda leaf: leaf[None], server.variables)
        return jax.vmap(start, in_axes=(None, 0))(server, clients)

    return Method(
        init=init,
        start=start,
        objective=objective or cross_entropy(setup.model),
        optimizer=client_optimizer(h),
        finish=finish,
        aggregate=aggregate,
        update=update,
        predict=start,
        unseen=unseen,
        label=label,
        weights=lookup("weighting", h.weighting, WEIGHTINGS),
    )
