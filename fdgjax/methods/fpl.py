"""FPL: FedAvg whose clients learn with prototypes of all clients: clusters of them, and their mean in which no large
domain outweighs a small one.

    p_ik = mean of f(x) over client i's samples of class k;    C_k = means of the clusters of p_1k, p_2k, ... (FINCH)
    L_i  = CE + contrast  mean -log( sum_(c in C_y) e^(cos(f, c)/T) / sum_l sum_(c in C_l) e^(cos(f, c)/T) )
              + regularisation  mean |f - u_y|^2 / m,    u_k = mean of C_k

f are the m features before the last layer. The p_ik are measured with the model that the client receives, and sent with
its update; the server clusters them, class by class, and sends all means with the model of the next round. Samples of a
class without a prototype have neither term. With both weights 0 it is FedAvg. The global model predicts for an unseen
domain.

Huang, Ye, Shi, Li and Du, "Rethinking federated learning with domain shift: a prototype view", CVPR 2023, and its
official code (WenkeHuang/RethinkFL), where both weights are 1.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.first_neighbours import cluster_means, cluster_shares, first_neighbour_clusters
from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Fresh
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.prototypes import Prototypes, exchanging_prototypes, nothing
from fdgjax.methods.parts.requirements import CLASSES, FEATURES
from fdgjax.objectives import mean_cross_entropy
from fdgjax.objectives.contrastive import SHORTEST_SQUARED
from fdgjax.objectives.cross_entropy import masked_mean

OFFICIAL = "Huang et al., official code"


@dataclasses.dataclass(frozen=True)
class FPL(FedAvg):
    """FedAvg's hyperparameters and the prototypes'.

    contrast: weight of the contrast with the clusters' means. temperature: T, of the contrast.
    regularisation: weight of the distance to the clusters' mean.
    """

    contrast: float = hyper(1.0, search=(0.1, 1.0), source=f"{OFFICIAL}: 1")
    temperature: float = hyper(0.02, above=0, search=(0.02, 0.04, 0.06), source=f"{OFFICIAL}: 0.02")
    regularisation: float = hyper(1.0, search=(0.1, 1.0), source=f"{OFFICIAL}: 1")


class Clusters(NamedTuple):
    """Of each client, its cluster's mean, `[clients, classes, m]`, and one over the cluster's size, `[clients,
    classes]`; 0 without a prototype. A sum over clusters is a sum over clients with these shares."""

    means: jax.Array
    shares: jax.Array


def fpl(setup: Setup, h: FPL) -> Method:
    """FedAvg with prototypes."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = setup.model.apply(variables, batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if h.contrast or h.regularisation:
            far, off = prototype_losses(output.features, batch, context.sent.more, h.temperature)
            loss += h.contrast * far + h.regularisation * off
        return loss, changed

    def begin(fresh: Fresh) -> Clusters:
        none = nothing(setup.model)(fresh)
        return Clusters(*(jnp.zeros((setup.clients, *leaf.shape)) for leaf in none))

    def combine(known: Clusters, clients: Prototypes, weights: jax.Array) -> Clusters:
        there = (clients.counts > 0) & (weights[:, None] > 0)
        same = jax.vmap(first_neighbour_clusters, 1)(clients.features, there)
        means = jax.vmap(cluster_means, (1, 0), 1)(clients.features, same)
        absent = setup.clients - len(weights)
        padded = Clusters(
            jnp.pad(means, ((0, absent), (0, 0), (0, 0))),
            jnp.pad(jax.vmap(cluster_shares, 0, 1)(same), ((0, absent), (0, 0))),
        )
        found = jnp.any(there, axis=0)
        return Clusters(
            jnp.where(found[None, :, None], padded.means, known.means),
            jnp.where(found[None, :], padded.shares, known.shares),
        )

    exchanging = exchanging_prototypes(fedavg(setup, h), setup.model, begin, combine)
    return exchanging._replace(objective=objective)


def prototype_losses(
    features: jax.Array, batch: Batch, clusters: Clusters, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """The contrast and the distance of the equations above, means over the batch; features `[batch, m]`."""
    means, shares = clusters
    lengths = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(features), axis=1), SHORTEST_SQUARED))
    norms = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(means), axis=2), SHORTEST_SQUARED))
    products = jnp.einsum("bm,ikm->bik", features, means, precision=jax.lax.Precision.HIGHEST)
    logits = products / (lengths[:, None, None] * norms[None] * temperature)
    totals = jnp.sum(shares, axis=0)
    there = totals[batch.labels] > 0
    # Where there is no prototype, a constant: the logarithm of zero has no gradient.
    counted = jnp.where(jnp.any(totals > 0), shares, 1.0)
    own = jnp.where(there[:, None], jnp.moveaxis(shares, 1, 0)[batch.labels], 1.0)
    of_own = jnp.take_along_axis(logits, batch.labels[:, None, None], axis=2)[:, :, 0]
    every = jax.nn.logsumexp(logits, axis=(1, 2), b=jnp.broadcast_to(counted[None], logits.shape))
    contrast = every - jax.nn.logsumexp(of_own, axis=1, b=own)
    unbiased = jnp.sum(shares[:, :, None] * means, axis=0) / jnp.where(totals > 0, totals, 1)[:, None]
    distance = jnp.mean(jnp.square(features - unbiased[batch.labels]), axis=1)
    far, off = (masked_mean(jnp.where(there, each, 0), batch.mask) for each in (contrast, distance))
    return far, off


ENTRY = Entry(
    "fpl",
    FPL,
    fpl,
    "features near clusters of all clients' prototypes (Huang et al., 2023)",
    title="FPL",
    needs=(CLASSES, FEATURES),
)
