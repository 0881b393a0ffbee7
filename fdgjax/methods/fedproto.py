"""FedProto: clients keep their models and share the mean features of each class alone.

    L_i(w) = CE + weight mean |f(x) - P_y|^2 / m          P_y only where it is known
    p_ik   = mean of f_i(x) over client i's samples of class k
    P_k   <- sum_i n_ik p_ik / sum_i n_ik                 n_ik samples of class k at client i

f are the m features before the last layer. No variable leaves a client. Its p_ik are those of the model with which its
round begins, which is the one it trained last; P_k of a class that no client of the round has stays as it was. With
weight 0 it is Local. On an unseen domain the clients' accuracies are averaged.

Tan et al., "FedProto: federated prototype learning across heterogeneous clients", AAAI 2022, and its official code
(yuetan031/FedProto), whose mean over clients is uniform.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.local import Local, local
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.prototypes import Prototypes, exchanging_prototypes, nothing
from fdgjax.methods.parts.requirements import CLASSES, FEATURES
from fdgjax.objectives import mean_cross_entropy
from fdgjax.objectives.cross_entropy import masked_mean


@dataclasses.dataclass(frozen=True)
class FedProto(Local):
    """Local's hyperparameters and the prototypes'.

    weight: of the distance to the class's prototype.
    weighting: of the clients' prototypes, by their numbers of `samples` of the class or `uniform`.
    """

    weight: float = hyper(1.0, search=(0.1, 1.0, 4.0), source="Tan et al., official code: ld, 1")


def fedproto(setup: Setup, h: FedProto) -> Method:
    """Local with shared prototypes."""

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = setup.model.apply(variables, batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if h.weight:
            loss += h.weight * prototype_distance(output.features, batch, context.sent.more)
        return loss, changed

    def combine(known: Prototypes, clients: Prototypes, weights: jax.Array) -> Prototypes:
        return mean_prototypes(known, clients, weights, h.weighting == "uniform")

    exchanging = exchanging_prototypes(local(setup, h), setup.model, nothing(setup.model), combine)
    return exchanging._replace(objective=objective)


def mean_prototypes(known: Prototypes, clients: Prototypes, weights: jax.Array, uniform: bool) -> Prototypes:
    """The means of the clients' prototypes, class by class; those `known` of classes that no client of the round has.

    Args:
      known: `[classes, ...]`. clients: `[clients, classes, ...]`.
      weights: `[clients]`, 0 for a client that is left out of the round.
      uniform: whether clients that have samples of a class count equally, else by how many.
    """
    counts = jnp.where(weights[:, None] > 0, clients.counts, 0)
    shares = (counts > 0).astype(jnp.float32) if uniform else counts
    total = jnp.sum(shares, axis=0)
    sums = jnp.sum(jnp.where(shares[:, :, None] > 0, shares[:, :, None] * clients.features, 0), axis=0)
    means = sums / jnp.where(total > 0, total, 1)[:, None]
    features = jnp.where(total[:, None] > 0, means, known.features)
    return Prototypes(features, jnp.where(total > 0, jnp.sum(counts, axis=0), known.counts))


def prototype_distance(features: jax.Array, batch: Batch, prototypes: Prototypes) -> jax.Array:
    """`mean |f - P_y|^2 / m` over the batch, 0 for a sample whose class has no prototype; features `[batch, m]`."""
    gaps = jnp.mean(jnp.square(features - prototypes.features[batch.labels]), axis=1)
    return masked_mean(jnp.where(prototypes.counts[batch.labels] > 0, gaps, 0), batch.mask)


ENTRY = Entry(
    "fedproto",
    FedProto,
    fedproto,
    "models stay, mean features of each class are shared (Tan et al., 2022)",
    title="FedProto",
    needs=(CLASSES, FEATURES),
)
