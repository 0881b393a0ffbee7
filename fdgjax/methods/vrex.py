"""VREx: equal losses in every domain, on pooled data or at each client.

    L = mean_d CE_d + penalty mean_d (CE_d - mean_e CE_e)^2

CE_d is the mean cross-entropy of the minibatch's samples of domain d. The penalty's weight is 1 until a share `anneal`
of the rounds is done, then `penalty`, and the optimiser is reset at that point. With `pooled` all data lie in one
place; else each client compares its own domains, and FedAvg does the rest. The domain of each sample is known.

Krueger et al., "Out-of-distribution generalization via risk extrapolation (REx)", ICML 2021: V-REx, there with the sum
of the losses, as implemented in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021).
"""

import dataclasses

import jax

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.central import CentralByDomain, annealed, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import SEVERAL_DOMAINS
from fdgjax.objectives import each_cross_entropy
from fdgjax.objectives.by_domain import domain_means, domain_variance, members, present_domains
from fdgjax.objectives.cross_entropy import masked_mean


@dataclasses.dataclass(frozen=True)
class VREx(CentralByDomain):
    """Central's hyperparameters, and the penalty's.

    penalty: weight of the variance. anneal: share of the rounds after which this weight is used; before, it is 1.
    """

    penalty: float = hyper(1e1, search=(1e-1, 1.0, 1e1, 1e2, 1e3, 1e4), source="DomainBed, vrex_lambda: 10^U(-1, 5)")
    anneal: float = hyper(
        0.1, most=1, search=(0.0, 0.01, 0.1, 0.5), source="DomainBed: after 500 of 5,000 steps, 10^U(0, 4)"
    )


def vrex(setup: Setup, h: VREx) -> Method:
    """Central, or FedAvg, with the variance of the domains' losses as a penalty.

    Raises:
      UserError: fewer than two domains.
    """
    weight, optimizer = annealed(setup, h, before=1.0, penalty=h.penalty, anneal=h.anneal)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = setup.model.apply(variables, batch.inputs, True, key)
        own = members(batch, setup.domains)
        losses, there = domain_means(each_cross_entropy(output.logits, batch), own), present_domains(own)
        return masked_mean(losses, there) + weight(context) * domain_variance(losses, there), changed

    return comparing_domains(setup, h, objective)._replace(optimizer=optimizer)


ENTRY = Entry(
    "vrex",
    VREx,
    vrex,
    "pooled data, equal losses in every domain (Krueger et al., 2021)",
    title="VREx",
    pooled=lambda h: h.pooled,
    needs=(SEVERAL_DOMAINS,),
)
