"""Fishr: gradients with the same variance in every domain, on pooled data or at each client.

    v_d  = variance over domain d's samples of their gradients of CE with respect to the last layer's parameters
    v~_d = (ema m_d + (1 - ema) v_d) / (1 - ema),    m_d <- ema m_d + (1 - ema) v_d    (m_d has no gradient)
    L    = CE + penalty mean_d mean_k (v~_dk - mean_e v~_ek)^2

of the minibatch's samples; m_d begins at zero and is kept from step to step and round to round. The penalty's weight is
0 until a share `anneal` of the rounds is done, then `penalty`, and the optimiser is reset at that point. A domain
without a sample in the minibatch keeps its m_d and takes no part. With `pooled` all data lie in one place; else each
client compares its own domains, its m_d stay there, and FedAvg does the rest. The domain of each sample is known.

Rame, Dancette and Cord, "Fishr: invariant gradient variances for out-of-distribution generalization", ICML 2022,
equations 3 and 4, and its code in DomainBed, which divides the moving average by 1 - ema.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.central import CentralByDomain, annealed, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Fresh
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.model_memory import MEMORY, remembering, without_memory
from fdgjax.methods.parts.requirements import CLASSES, FEATURES, SEVERAL_DOMAINS, last_layer
from fdgjax.objectives import mean_cross_entropy
from fdgjax.objectives.by_domain import domain_variance, gradient_variances, members, present_domains
from fdgjax.utils.variables import flatten


@dataclasses.dataclass(frozen=True)
class Fishr(CentralByDomain):
    """Central's hyperparameters, and the penalty's.

    penalty: weight of the distance of variances. anneal: share of the rounds after which this weight is used; before,
    it is 0.
    ema: share of the former average of variances in the new one.
    """

    penalty: float = hyper(1e3, search=(1e1, 1e2, 1e3, 1e4), source="DomainBed, lambda: 1000, 10^U(1, 4)")
    anneal: float = hyper(
        0.3, most=1, search=(0.0, 0.1, 0.3, 1.0), source="DomainBed: after 1,500 of 5,000 steps, U(0, 5000)"
    )
    ema: float = hyper(0.95, most=0.999, search=(0.9, 0.95, 0.99), source="DomainBed, ema: 0.95, U(0.90, 0.99)")


def fishr(setup: Setup, h: Fishr) -> Method:
    """Central with Fishr's penalty, the averages m_d in its memory.

    Raises:
      UserError: fewer than two domains.
    """
    weight, optimizer = annealed(setup, h, before=0.0, penalty=h.penalty, anneal=h.anneal)
    shapes = flatten(setup.model.shapes())
    kernel = last_layer(setup.model)
    size, classes = shapes[kernel].shape
    bias = f"{kernel.removesuffix('kernel')}bias" in shapes

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = setup.model.apply(without_memory(variables), batch.inputs, True, key)
        own, before = members(batch, setup.domains), variables[MEMORY]["variances"]
        now = gradient_variances(output.features, output.logits, batch.labels, own, bias)
        averaged = h.ema * before + (1 - h.ema) * now
        there = present_domains(own)
        kept = jnp.where(there[:, None, None] > 0, jax.lax.stop_gradient(averaged), before)
        variance = domain_variance(averaged / (1 - h.ema), there)
        loss = mean_cross_entropy(output.logits, batch) + weight(context) * variance
        return loss, {**changed, MEMORY: {"variances": kept}}

    def nothing(fresh: Fresh) -> dict[str, jax.Array]:
        return {"variances": jnp.zeros((len(fresh.federation.ids), setup.domains, size + bias, classes))}

    return remembering(comparing_domains(setup, h, objective)._replace(optimizer=optimizer), nothing)


ENTRY = Entry(
    "fishr",
    Fishr,
    fishr,
    "pooled data, gradients that vary alike in every domain (Rame et al., 2022)",
    title="Fishr",
    pooled=lambda h: h.pooled,
    needs=(CLASSES, FEATURES, SEVERAL_DOMAINS),
)
