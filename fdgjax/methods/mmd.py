"""MMD: features with the same distribution in every domain, on pooled data or at each client.

    L = mean_d CE_d + penalty mean_(i<j) [ mean k(x, x') + mean k(y, y') - 2 mean k(x, y) ]

x and x' are features (the inputs of the last layer) of the minibatch's samples of domain i, y and y' of domain j, and k
is the sum of the Gaussian kernels `exp(-g |x - y|^2)`, g = 0.001, 0.01, ..., 1000. CE_d is the mean cross-entropy of
domain d. With `pooled` all data lie in one place; else each client compares its own domains, and FedAvg does the rest.
The domain of each sample is known.

Li, Pan, Wang and Kot, "Domain generalization with adversarial feature learning", CVPR 2018, as implemented in DomainBed
(Gulrajani and Lopez-Paz, ICLR 2021): the discrepancy alone, without an autoencoder and an adversary.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax

from fdgjax.contract import Method, Setup
from fdgjax.methods.central import CentralByDomain, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import FEATURES, SEVERAL_DOMAINS
from fdgjax.objectives import aligned_domains
from fdgjax.objectives.by_domain import pairwise_mmd
from fdgjax.utils.registry import lookup

ESTIMATES: Mapping[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "biased": pairwise_mmd,
    "unbiased": partial(pairwise_mmd, unbiased=True),
}


@dataclasses.dataclass(frozen=True)
class MMD(CentralByDomain):
    """Central's hyperparameters, and the penalty's.

    penalty: weight of the discrepancy. estimate: `biased`, with pairs of a sample and itself, or `unbiased`. With few
      samples of a domain in a minibatch, the biased estimate is smallest if all features are equal.
    """

    penalty: float = hyper(1.0, search=(0.1, 1.0, 10.0), source="DomainBed, mmd_gamma: 1, 10^U(-1, 1)")
    estimate: str = hyper("biased", search=tuple(ESTIMATES), source="DomainBed; docs/deviations.md")


def central_mmd(setup: Setup, h: MMD) -> Method:
    """Central with the discrepancy as a penalty.

    Raises:
      UserError: fewer than two domains, or an unknown estimate.
    """
    distance = lookup("config.method.estimate", h.estimate, ESTIMATES)
    objective = aligned_domains(setup.model, distance, setup.domains, h.penalty)
    return comparing_domains(setup, h, objective)


ENTRY = Entry(
    "mmd",
    MMD,
    central_mmd,
    "pooled data, features of equal distribution (Li et al., 2018)",
    title="MMD",
    pooled=lambda h: h.pooled,
    needs=(FEATURES, SEVERAL_DOMAINS),
)
