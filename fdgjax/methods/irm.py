"""IRM: a classifier that is optimal in every domain at once, on pooled data or at each client.

    L = mean_d CE_d + penalty mean_d (d/dw CE(w z; A_d)) (d/dw CE(w z; B_d))  at w = 1

z are the logits, A_d and B_d two halves of the minibatch's samples of domain d, so that the product is an unbiased
estimate of the squared derivative; CE_d is the mean cross-entropy of domain d. The penalty's weight is 1 until a share
`anneal` of the rounds is done, then `penalty`, and the optimiser is reset at that point. With `pooled` all data lie in
one place; else each client compares its own domains, and FedAvg does the rest. The domain of each sample is known.

Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant risk minimization", 2019, IRMv1 (equation 4 and appendix D), as
implemented in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021).
"""

import dataclasses

import jax

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.central import CentralByDomain, annealed, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import CLASSES
from fdgjax.objectives import each_cross_entropy
from fdgjax.objectives.by_domain import invariance_penalty, mean_over_domains, members


@dataclasses.dataclass(frozen=True)
class IRM(CentralByDomain):
    """Central's hyperparameters, and the penalty's.

    penalty: weight of the squared derivative. anneal: share of the rounds after which this weight is used; before, it
    is 1.
    """

    penalty: float = hyper(1e2, search=(1e-1, 1.0, 1e1, 1e2, 1e3, 1e4), source="DomainBed, irm_lambda: 10^U(-1, 5)")
    anneal: float = hyper(
        0.1, most=1, search=(0.0, 0.01, 0.1, 0.5), source="DomainBed: after 500 of 5,000 steps, 10^U(0, 4)"
    )


def irm(setup: Setup, h: IRM) -> Method:
    """Central with IRM's penalty.

    Raises:
      UserError: fewer than two domains.
    """
    weight, optimizer = annealed(setup, h, before=1.0, penalty=h.penalty, anneal=h.anneal)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = setup.model.apply(variables, batch.inputs, True, key)
        own = members(batch, setup.domains)
        loss = mean_over_domains(each_cross_entropy(output.logits, batch), own)
        return loss + weight(context) * invariance_penalty(output.logits, batch.labels, own), changed

    return comparing_domains(setup, h, objective)._replace(optimizer=optimizer)


ENTRY = Entry(
    "irm",
    IRM,
    irm,
    "pooled data, a classifier that is optimal in every domain (Arjovsky et al., 2019)",
    title="IRM",
    pooled=lambda h: h.pooled,
    needs=(CLASSES,),
)
