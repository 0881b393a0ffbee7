"""Central: centralised training on the pooled data, the reference without federation.

hFedF v2, section 5.1, with FedAvg's hyperparameters (appendix C.8.2). A round is `local_epochs` passes over the pooled
data, so that training budgets are comparable. It equals FedAvg with one client.

CORAL, MMD, IRM, VREx, GroupDRO, Fish, Fishr and mixup build on it: domain generalization methods that use the domain of
every sample, on the pooled data or at each client by itself (`comparing_domains`).
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, Method, Objective, Order, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer, renewed
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import domain_aware, domain_by_domain
from fdgjax.utils.registry import lookup

BATCHES: Mapping[str, Order | None] = {"equal": domain_aware, "shuffled": None, "single": domain_by_domain}
"""How minibatches are drawn: in equal parts from all domains, from shuffled samples, or each from a single domain."""


@dataclasses.dataclass(frozen=True)
class Central(FedAvg):
    """FedAvg's hyperparameters.

    keep_optimizer: whether the optimiser's state is kept between rounds.
    """

    keep_optimizer: bool = hyper(True, search=(True, False), source="nothing interrupts central training")


@dataclasses.dataclass(frozen=True)
class CentralByDomain(Central):
    """Central's hyperparameters, for methods that compare the domains of a minibatch.

    pooled: whether to train on the pooled data, the reference without federation; else each client compares the domains
      of its own samples and FedAvg does the rest. A client of one domain compares nothing.
    keep_optimizer: whether the optimiser's state is kept between rounds, also at clients, whose optimisers FedAvg makes
      anew in every round.
    batches: minibatches of `equal` parts of all domains, so that in an epoch the samples of a small domain recur and
      some of a large one are left out, or `shuffled`.
    """

    pooled: bool = hyper(True, search=(True, False), source="DomainBed; at clients, Bai et al., 2024")
    batches: str = hyper("equal", search=("equal", "shuffled"), source="DomainBed: a minibatch of each domain")


def central(setup: Setup, h: Central, *, objective: Objective | None = None) -> Method:
    """FedAvg over one client that holds all training data."""
    return fedavg(setup, h, objective=objective)._replace(pooled=True)


def comparing_domains(setup: Setup, h: CentralByDomain, objective: Objective) -> Method:
    """Central, or FedAvg at clients that know the domains of their samples, with an objective that compares the domains
    of a minibatch.

    Raises:
      UserError: a data set of fewer than two domains, or unknown batches.
    """
    if setup.domains < 2:
        raise UserError(
            f"method '{h.name}' compares domains and got {setup.domains}; expected a Setup with at least 2 domains; "
            "a deployment does not know the domains of its nodes' samples"
        )
    order = lookup("config.method.batches", h.batches, BATCHES)
    return fedavg(setup, h, objective=objective)._replace(pooled=h.pooled, order=order)


def annealed(
    setup: Setup, h: CentralByDomain, *, before: float, penalty: float, anneal: float
) -> tuple[Callable[[Context], jax.Array], optax.GradientTransformation]:
    """A penalty's weight in a round, and the optimiser, which is reset when that weight changes.

    Args:
      setup, h: what the method is built for.
      before: the weight until a share `anneal` of the rounds is done. penalty: the weight from then on.
    """
    begins = round(anneal * setup.rounds)

    def weight(context: Context) -> jax.Array:
        return jnp.where(context.round >= begins, jnp.float32(penalty), before)

    return weight, renewed(client_optimizer(h, setup.rounds), begins)


ENTRY = Entry(
    "central",
    Central,
    central,
    "centralised training on pooled data, the reference without federation",
    title="Central",
    pooled=always,
)
