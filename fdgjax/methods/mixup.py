"""Mixup between domains: a sample mixed with one of another domain, on pooled data or at each client.

    x~_i = l_d x_i + (1 - l_d) x_j,    l_d ~ Beta(alpha, alpha)
    L    = mean_d mean_(i in d) [ l_d CE(f(x~_i), y_i) + (1 - l_d) CE(f(x~_i), y_j) ]

In each minibatch the domains are put in a random cyclic order, and the k-th sample i of domain d is mixed with the k-th
sample j of the next; one l_d for each domain and minibatch. With `pooled` all data lie in one place; else each client
mixes its own domains, and FedAvg does the rest. The domain of each sample is known.

Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: beyond empirical risk minimization", ICLR 2018; between domains, Yan, Song,
Li, Zou and Ren, "Improve unsupervised domain adaptation with mixup training", 2020, as implemented in DomainBed
(Gulrajani and Lopez-Paz, ICLR 2021).
"""

import dataclasses

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, ObjectiveResult, Setup, Variables
from fdgjax.methods.central import CentralByDomain, comparing_domains
from fdgjax.methods.parts.entry import Entry, always
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import SEVERAL_DOMAINS
from fdgjax.objectives import each_cross_entropy
from fdgjax.objectives.by_domain import mean_over_domains, members, partners


@dataclasses.dataclass(frozen=True)
class Mixup(CentralByDomain):
    """Central's hyperparameters, and the mixture's.

    alpha: of the mixing shares' distribution, Beta(alpha, alpha); a small alpha leaves samples nearly unchanged.
    """

    alpha: float = hyper(0.2, above=0, search=(0.1, 0.2, 1.0, 10.0), source="DomainBed, mixup_alpha: 0.2, 10^U(-1, 1)")


def mixup(setup: Setup, h: Mixup) -> Method:
    """Central on mixed images.

    Raises:
      UserError: fewer than two domains.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        pair_key, share_key, apply_key = jax.random.split(key, 3)
        own = members(batch, setup.domains)
        other = partners(pair_key, own)
        draws = jax.random.beta(share_key, jnp.asarray(h.alpha), jnp.asarray(h.alpha), (setup.domains,))
        share = jnp.sum(own * draws[None, :], axis=1)
        output, changed = setup.model.apply(variables, mixed_images(batch.inputs, share, other), True, apply_key)
        theirs = batch._replace(labels=batch.labels[other])
        losses = share * each_cross_entropy(output.logits, batch)
        losses += (1 - share) * each_cross_entropy(output.logits, theirs)
        return mean_over_domains(losses, own), changed

    return comparing_domains(setup, h, objective)


def mixed_images(images: jax.Array, share: jax.Array, other: jax.Array) -> jax.Array:
    """`l x_i + (1 - l) x_j` of each image; l `[batch]`, and j the position of each image's partner."""
    share = share.reshape(-1, *[1] * (images.ndim - 1))
    return share * images + (1 - share) * images[other]


ENTRY = Entry(
    "mixup",
    Mixup,
    mixup,
    "pooled data, samples mixed with another domain's (Zhang et al., 2018)",
    pixels=always,
    pooled=lambda h: h.pooled,
    needs=(SEVERAL_DOMAINS,),
)
