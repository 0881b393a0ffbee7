"""UAP, the unified alignment protocol: server and clients align their features with the same Gaussian for each class.

    L = CE(f(x), y) + alpha CDD(z, z~) + beta COV(z),      z~ of class k from N(w_k, lambda I)

w_k, the classifier's weights for class k, is the mean of the class's Gaussian, so that sending the model also sends the
server's feature distribution. y are true labels at the server and pseudo-labels (`ssfl.py`) at clients. CDD is the
contrastive domain discrepancy (equation 3), COV pulls the covariance of all features to gamma lambda I (equation 4).
With alpha = beta = 0 it is SSFL.

Ahmed et al., "Unified alignment protocol: making sense of the unlabeled data in new domains", section 4.

References:
  Search ranges: Tables 14 and 15.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, Model, Objective, ObjectiveResult, Setup, Variables
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import FEATURES, last_layer
from fdgjax.methods.parts.setting_presets import SERVED
from fdgjax.methods.ssfl import SSFL, ssfl
from fdgjax.objectives import (
    contrastive_domain_discrepancy,
    covariance_matching,
    mean_cross_entropy,
    off_diagonal_covariance,
    random_classes,
)
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten

Covariance = Callable[[jax.Array, jax.Array, float], jax.Array]
COVARIANCES: Mapping[str, Covariance] = {
    "identity": lambda features, mask, reference: covariance_matching(features, mask, reference=reference),
    "off_diagonal": lambda features, mask, reference: off_diagonal_covariance(features, mask),
}
"""The rows of Table 15."""

MEANS: Mapping[str, Callable[[Variables, Context], Variables]] = {
    "received": lambda variables, context: context.received,
    "trained": lambda variables, context: variables,
}
"""Whose classifier weights are the means of a client's Gaussians."""


@dataclasses.dataclass(frozen=True)
class UAP(SSFL):
    """SSFL's hyperparameters and the alignment.

    alpha: weight of CDD. beta: weight of COV. lambda_: variance of the classes' Gaussians. gamma: factor on lambda for
      the reference covariance.
    covariance: `identity` (equation 4) or `off_diagonal` (Table 15: variances are left alone).
    least_samples: a partial minibatch with fewer samples is left out of COV: white features of n samples and m
      dimensions have an expected COV of `(m + 1) / (n - 1)`.
    classes: number of classes that CDD compares, drawn anew for each batch; 0 for all.
    client_means: a client aligns to the classifier it `received`, or to the one being `trained`.
    """

    alpha: float = hyper(1.0, search=(0.0, 0.5, 1.0, 2.0), source="UAP, Table 14")
    beta: float = hyper(1.0, search=(0.0, 0.5, 1.0, 2.0), source="UAP, Table 14")
    lambda_: float = hyper(0.01, search=(0.0001, 0.01, 1.0), source="UAP, Table 14")
    gamma: float = hyper(100.0, search=(50.0, 100.0, 200.0), source="UAP, Table 15")
    covariance: str = hyper("identity", search=tuple(COVARIANCES), source="UAP, Table 15")
    least_samples: int = hyper(32, least=1, search=(1, 32), source="half of the paper's batch; docs/deviations.md")
    classes: int = hyper(0, search=(0, 5, 10), source="UAP, section 4.1: a random subset, size not given")
    client_means: str = hyper("received", search=tuple(MEANS), source="UAP, section 4.2: the server's distributions")


def uap(setup: Setup, h: UAP) -> Method:
    """SSFL with features aligned at the server and at the clients."""
    at_client = lookup("client_means", h.client_means, MEANS)
    server, client = (gaussian_aligned(setup.model, h, means) for means in (MEANS["trained"], at_client))
    return ssfl(setup, h, server=server, client=client)


def gaussian_aligned(model: Model, h: UAP, means: Callable[[Variables, Context], Variables]) -> Objective:
    """Cross-entropy, CDD to the Gaussians around the classifier's weights, and covariance matching."""
    covariance, classifier = lookup("covariance", h.covariance, COVARIANCES), last_layer(model)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        apply_key, sample_key, class_key = jax.random.split(key, 3)
        output, changed = model.apply(variables, batch.inputs, True, apply_key)
        loss, counted = mean_cross_entropy(output.logits, batch), batch.mask * batch.label_weight
        if h.alpha:
            weights = flatten(means(variables, context))[classifier].T
            noise = jax.random.normal(sample_key, output.features.shape, output.features.dtype)
            gaussian = weights[batch.labels] + jnp.sqrt(jnp.float32(h.lambda_)) * noise
            present = jnp.zeros(len(weights)).at[batch.labels].add(counted) > 0
            discrepancy, _ = contrastive_domain_discrepancy(
                source=output.features,
                source_labels=batch.labels,
                target=gaussian,
                target_labels=batch.labels,
                classes=len(weights),
                source_mask=counted,
                target_mask=counted,
                chosen=random_classes(class_key, present, h.classes),
            )
            loss += h.alpha * discrepancy
        if h.beta:
            enough = jnp.sum(batch.mask) >= min(h.least_samples, len(batch.mask))
            loss += h.beta * jnp.where(enough, covariance(output.features, batch.mask, h.gamma * h.lambda_), 0)
        return loss, changed

    return objective


ENTRY = Entry(
    "uap",
    UAP,
    uap,
    "labelled server, unlabelled clients, features aligned to Gaussians (UAP)",
    title="UAP",
    protocol="labelled_server",
    presets=SERVED,
    needs=(FEATURES,),
)
