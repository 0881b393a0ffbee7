"""Fish: steps from domain to domain, of which a share is kept, so that gradients of different domains agree; on pooled
data or at each client.

    v_0 = w;    v_d = step of the optimiser from v_(d-1) on a minibatch of domain d,  d = 1, ..., n
    w <- w + rate (v_n - w)

To second order in the optimiser's rate, this raises the inner products of the domains' gradients. Minibatches are of
one domain each and cycle through the domains; a round that ends within a set of n keeps the same share of the steps it
took. The optimiser's state goes on from set to set. With `pooled` all data lie in one place; else each client cycles
through its own domains, and FedAvg does the rest. The domain of each sample is known. With rate 1 it is Central, or
FedAvg, on minibatches of one domain.

Shi et al., "Gradient matching for domain generalization", ICLR 2022, Algorithm 1, as implemented in DomainBed
(Gulrajani and Lopez-Paz, ICLR 2021), whose inner optimiser is Adam.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, Method, PyTree, Setup, Trained
from fdgjax.data.federation import label_counts
from fdgjax.methods.central import CentralByDomain, comparing_domains
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.requirements import SEVERAL_DOMAINS
from fdgjax.objectives import cross_entropy


@dataclasses.dataclass(frozen=True)
class Fish(CentralByDomain):
    """Central's hyperparameters, and the share that is kept.

    batches: minibatches of a `single` domain.
    rate: share of the steps through all domains that is kept.
    """

    batches: str = hyper("single", search=("single",), source="Shi et al., Algorithm 1")
    rate: float = hyper(0.5, above=0, most=1, search=(0.05, 0.1, 0.5), source="DomainBed, meta_lr: 0.5, of 0.05 to 0.5")


class Interpolating(NamedTuple):
    """The optimiser's state; the parameters w with which the current set of steps began, how many of its steps are
    taken, and the round."""

    inner: PyTree
    outer: PyTree
    taken: jax.Array
    round: jax.Array


def fish(setup: Setup, h: Fish) -> Method:
    """Central, or FedAvg, with an optimiser that keeps a share of its steps through the domains.

    Raises:
      UserError: fewer than two domains.
    """

    def domains_of(fresh: Fresh) -> jax.Array:
        counts = label_counts(fresh.federation.domains, fresh.federation.train, setup.domains)
        return jnp.sum(counts > 0, axis=1)

    base = comparing_domains(setup, h, cross_entropy(setup.model))
    extended = extend(base, row=RowExtension(domains_of))

    def finish(context: Context, trained: Trained) -> tuple[PyTree, PyTree]:
        state, params = trained.optimizer, trained.variables["params"]
        kept = optax.tree.where(state.taken > 0, toward(state.outer, params, h.rate), params)
        return extended.finish(context, trained._replace(variables={**trained.variables, "params": kept}))

    optimizer = interpolating(client_optimizer(h, setup.rounds), h.rate, lambda context: context.client.more)
    return extended._replace(optimizer=optimizer, finish=finish)


def interpolating(
    optimizer: optax.GradientTransformation, rate: float, period: Callable[[Context], jax.Array]
) -> optax.GradientTransformationExtraArgs:
    """The optimiser, of whose steps every `period` together a share `rate` is kept; a new round begins a new set."""
    flexible = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree,
        state: Interpolating,
        params: PyTree | None = None,
        *,
        round: jax.Array,
        context: Context,
        **others: Any,
    ) -> tuple[PyTree, Interpolating]:
        begins = (state.taken == 0) | (state.round != round)
        outer, taken = optax.tree.where(begins, params, state.outer), jnp.where(begins, 0, state.taken) + 1
        steps, inner = flexible.update(updates, state.inner, params, round=round, context=context, **others)
        kept = toward(outer, optax.apply_updates(params, steps), rate)
        last = taken >= period(context)
        steps = optax.tree.where(last, optax.tree.sub(kept, params), steps)
        return steps, Interpolating(inner, outer, jnp.where(last, 0, taken), round)

    def init(params: PyTree) -> Interpolating:
        return Interpolating(optimizer.init(params), params, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    return optax.GradientTransformationExtraArgs(init, update)


def toward(begin: PyTree, end: PyTree, share: float) -> PyTree:
    """`begin + share (end - begin)`."""
    return jax.tree.map(lambda w, v: w + share * (v - w), begin, end)


ENTRY = Entry(
    "fish",
    Fish,
    fish,
    "pooled data, a share of steps from domain to domain (Shi et al., 2022)",
    title="Fish",
    pooled=lambda h: h.pooled,
    needs=(SEVERAL_DOMAINS,),
)
