"""CORAL: features with the same mean and covariance in every domain, on pooled data or at each client.

    L = mean_d CE_d + penalty mean_(i<j) [ mean_k (mu_ik - mu_jk)^2 + mean_kl (C_ikl - C_jkl)^2 ]

CE_d is the mean cross-entropy of the minibatch's samples of domain d, mu_d and C_d the mean and covariance of their
features, the inputs of the last layer. With `pooled` all data lie in one place; else each client compares its own
domains, and FedAvg does the rest. The domain of each sample is known.

Sun and Saenko, "Deep CORAL: correlation alignment for deep domain adaptation", ECCV workshops 2016, as implemented in
DomainBed (Gulrajani and Lopez-Paz, "In search of lost domain generalization", ICLR 2021): between all pairs of training
domains, with the means.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.central import CentralByDomain, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import FEATURES, SEVERAL_DOMAINS
from fdgjax.objectives import aligned_domains
from fdgjax.objectives.by_domain import coral as distance


@dataclasses.dataclass(frozen=True)
class CORAL(CentralByDomain):
    """Central's hyperparameters, and the penalty's.

    penalty: weight of the distance.
    """

    penalty: float = hyper(1.0, search=(0.1, 1.0, 10.0), source="DomainBed, mmd_gamma: 1, 10^U(-1, 1)")


def central_coral(setup: Setup, h: CORAL) -> Method:
    """Central with CORAL's penalty.

    Raises:
      UserError: fewer than two domains.
    """
    objective = aligned_domains(setup.model, distance, setup.domains, h.penalty)
    return comparing_domains(setup, h, objective)


ENTRY = Entry(
    "coral",
    CORAL,
    central_coral,
    "pooled data, features of equal mean and covariance (Sun & Saenko, 2016)",
    title="CORAL",
    pooled=lambda h: h.pooled,
    needs=(FEATURES, SEVERAL_DOMAINS),
)
