"""GroupDRO: domains with a larger loss get a larger weight, on pooled data or at each client.

    q_d <- q_d exp(eta CE_d) / sum_e q_e exp(eta CE_e);    L = sum_d q_d CE_d

in every step, CE_d the mean cross-entropy of the minibatch's samples of domain d, and q without a gradient. q begins
uniform over the training domains and is kept from step to step and round to round. A domain without a sample in the
minibatch keeps its weight, up to the normalisation. With `pooled` all data lie in one place; else each client weighs
its own domains by a q that stays there, and FedAvg does the rest. The domain of each sample is known.

Sagawa, Koh, Hashimoto and Liang, "Distributionally robust neural networks for group shifts", ICLR 2020, Algorithm 1, as
implemented in DomainBed (Gulrajani and Lopez-Paz, ICLR 2021): a group is a domain.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.data.federation import label_counts
from fdgjax.methods.central import CentralByDomain, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Fresh
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.model_memory import MEMORY, remembering, without_memory
from fdgjax.methods.parts.requirements import SEVERAL_DOMAINS
from fdgjax.objectives import each_cross_entropy
from fdgjax.objectives.by_domain import domain_means, members


@dataclasses.dataclass(frozen=True)
class GroupDRO(CentralByDomain):
    """Central's hyperparameters, and the weights'.

    eta: step size of the domains' weights; 0 leaves them uniform.
    """

    eta: float = hyper(1e-2, search=(1e-3, 1e-2, 1e-1), source="DomainBed, groupdro_eta: 1e-2, 10^U(-3, -1)")


def groupdro(setup: Setup, h: GroupDRO) -> Method:
    """Central with weights of the domains in its memory.

    Raises:
      UserError: fewer than two domains.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = setup.model.apply(without_memory(variables), batch.inputs, True, key)
        losses = domain_means(each_cross_entropy(output.logits, batch), members(batch, setup.domains))
        grown = variables[MEMORY]["weights"] * jnp.exp(h.eta * jax.lax.stop_gradient(losses))
        weights = grown / jnp.sum(grown)
        return jnp.sum(weights * losses), {**changed, MEMORY: {"weights": weights}}

    def uniform(fresh: Fresh) -> dict[str, jax.Array]:
        counts = label_counts(fresh.federation.domains, fresh.federation.train, setup.domains)
        there = (counts > 0).astype(jnp.float32)
        return {"weights": there / jnp.sum(there, axis=1, keepdims=True)}

    return remembering(comparing_domains(setup, h, objective), uniform)


ENTRY = Entry(
    "groupdro",
    GroupDRO,
    groupdro,
    "pooled data, the worst domains weigh most (Sagawa et al., 2020)",
    title="GroupDRO",
    pooled=lambda h: h.pooled,
    needs=(SEVERAL_DOMAINS,),
)
