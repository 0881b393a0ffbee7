"""Central: centralised training on the pooled data, the reference without federation.

hFedF v2, section 5.1, with FedAvg's hyperparameters (appendix C.8.2). A round is `local_epochs` passes over the pooled
data, so that training budgets are comparable. It equals FedAvg with one client.

CORAL, MMD, IRM, GroupDRO, Fishr and mixup build on it: domain generalization without federation, which also uses the
domain of every sample (`central_by_domain`).
"""

import dataclasses
from collections.abc import Mapping

from fdgjax.contract import Method, Objective, Order, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import hyper
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import domain_aware
from fdgjax.utils.registry import lookup

BATCHES: Mapping[str, Order | None] = {"equal": domain_aware, "shuffled": None}
"""How minibatches of pooled data are drawn: in equal parts from all domains, or from shuffled samples."""


@dataclasses.dataclass(frozen=True)
class Central(FedAvg):
    """FedAvg's hyperparameters.

    keep_optimizer: whether the optimiser's state is kept between rounds.
    """

    keep_optimizer: bool = hyper(True, search=(True, False), source="nothing interrupts central training")


@dataclasses.dataclass(frozen=True)
class CentralByDomain(Central):
    """Central's hyperparameters, for methods that compare the domains of a minibatch.

    batches: minibatches of `equal` parts of all domains, so that in an epoch the samples of a small domain recur and
      some of a large one are left out, or `shuffled`.
    """

    batches: str = hyper("equal", search=tuple(BATCHES), source="DomainBed: a minibatch of each domain")


def central(setup: Setup, h: Central, *, objective: Objective | None = None) -> Method:
    """FedAvg over one client that holds all training data."""
    return fedavg(setup, h, objective=objective)._replace(pooled=True)


def central_by_domain(setup: Setup, h: CentralByDomain, objective: Objective) -> Method:
    """Central with an objective that compares the domains of a minibatch.

    Raises:
      UserError: a data set of fewer than two domains, or unknown batches.
    """
    if setup.domains < 2:
        raise UserError(
            f"method '{h.name}' compares domains and got {setup.domains}; expected a Setup with at least 2 domains"
        )
    order = lookup("config.method.batches", h.batches, BATCHES)
    return central(setup, h, objective=objective)._replace(order=order)


ENTRY = Entry(
    "central",
    Central,
    central,
    "centralised training on pooled data, the reference without federation",
    pooled=always,
)
