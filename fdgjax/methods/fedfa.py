"""FedFA: FedAvg over a network that perturbs its features' channel statistics, more where clients differ
(`fdgjax.models.feature_augmentation` has the layer's equations).

    mu_i, sigma_i        running means of each channel's statistics, kept by client i's layers while it trains
    w <- sum_i p_i w_i   parameters, BatchNorm's statistics, and the running means
    v <- variance over the round's clients of mu_i, and of sigma_i; sent with the model of the next round

The global model also predicts for an unseen domain. Layers augment with probability 0.5, as in paper and code. Without
augmentation, or where v is unused, it is FedAvg on the same network.

Zhou & Konukoglu, "FedFA: Federated feature augmentation", 2023, Algorithms 1 and 2, and its official code.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Method, PyTree, Setup
from fdgjax.methods.fedavg import FedAvg, Message, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import FEATURE_AUGMENTATION, SEVERAL_PARTICIPANTS
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, unflatten

SUFFIX = "_variance"
"""Suffix of the server's statistics: `mean_variance` is the variance of `mean`."""


@dataclasses.dataclass(frozen=True)
class FedFA(FedAvg):
    """FedAvg's hyperparameters.

    variance: over clients for each `channel` (the paper), or over clients and channels, one value for the `layer` (the
      official code).
    """

    variance: str = hyper("channel", search=("channel", "layer"), source="the paper; its official code: layer")


def of_channels(values: jax.Array, seen: jax.Array) -> jax.Array:
    """`1/K sum_i (x_ic - mean_i x_ic)^2` over the K clients `seen`, `[clients, C] -> [C]`."""
    return jnp.var(values, axis=0, where=seen[:, None])


def channel_variance(values: jax.Array, seen: jax.Array) -> jax.Array:
    """The unbiased variance over all clients `seen` and all channels, repeated for each channel."""
    return jnp.broadcast_to(jnp.var(values, ddof=1, where=seen[:, None]), values.shape[1:])


VARIANCES: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "channel": of_channels,
    "layer": channel_variance,
}


def fedfa(setup: Setup, h: FedFA) -> Method:
    """FedAvg whose server measures how much clients' statistics differ.

    Raises:
      UserError: an unknown `variance`.
    """
    shapes = setup.model.shapes()
    made = [path for path in flatten(shapes) if path.startswith("batch_stats/") and path.endswith(SUFFIX)]
    variance = lookup("variance", h.variance, VARIANCES)
    base = fedavg(setup, h)

    def aggregate(
        server: ServerState, clients: ClientVariables, messages: Message, weights: jax.Array
    ) -> tuple[PyTree, PyTree]:
        step, info = base.aggregate(server, clients, messages, weights)
        now, updates, seen = flatten(server.variables), flatten(messages.update), weights > 0

        def change(path: str) -> jax.Array:
            measured = path.removesuffix(SUFFIX)
            found = variance(now[measured][None] + updates[measured], seen)
            return jnp.where(jnp.any(seen), found - now[path], 0)

        return step._replace(update=unflatten(flatten(step.update) | {path: change(path) for path in made})), info

    return base._replace(aggregate=aggregate, averaged=False)


ENTRY = Entry(
    "fedfa",
    FedFA,
    fedfa,
    "features augmented by the variance over clients (Zhou & Konukoglu, 2023)",
    title="FedFA",
    unit="augmented",
    needs=(FEATURE_AUGMENTATION, SEVERAL_PARTICIPANTS),
)
