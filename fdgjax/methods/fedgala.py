"""FedGaLA: self-supervised clients with gradients aligned to the last global step, and updates weighted by agreement.

    client:  a layer's g is kept if cos(-g, r) >= threshold,  r = theta_t - theta_(t-1)          (local alignment)
    server:  d = sum_i c_i d_i,  c_i from (1 + cos(d_i, d)) / 2, iterated three times            (global alignment)

Without either it is FedSimCLR (with the same part). With local alignment r is sent along with the model,
which doubles the downlink.

"Federated unsupervised domain generalization using global and local alignment of gradients", section 4 and Algorithm 1;
regularisers: Table 4 and appendix D.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import optax

from fdgjax.aggregation import global_alignment, mean
from fdgjax.aggregation.global_alignment import COMPARED
from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Objective,
    ObjectiveResult,
    PyTree,
    Rule,
    ServerStep,
    Setup,
    Variables,
)
from fdgjax.methods.fedavg import Message
from fdgjax.methods.fedsimclr import FedSimCLR, fedsimclr
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, extend
from fdgjax.methods.parts.gradient_alignment import DROPPED, REFERENCES, SIGNS, align_with, discard_rate
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.optimizers import client_optimizer
from fdgjax.methods.parts.requirements import PREDICTOR
from fdgjax.methods.parts.server_state import WEIGHTINGS
from fdgjax.methods.parts.setting_presets import SIMCLR
from fdgjax.methods.parts.sharing import ClientVariables
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten, unflatten


@dataclasses.dataclass(frozen=True)
class FedGaLA(FedSimCLR):
    """The hyperparameters of self-supervised clients, and of the alignment.

    local: whether gradients are aligned. threshold: the smallest cosine of a gradient that is kept. sign: `descent` or
      `as_published`.
    reference: what gradients are aligned with, the last `step` of the global model or `random` directions, a control
      that drops half of the gradients at random.
    dropped: what the optimiser makes of a dropped gradient, `skip` (it leaves the array as it is) or `zero`.
    first_round: the first round (from 0) in which gradients are aligned; before round 1 there is no last step.
    globally: whether updates are aligned. iterations, gamma, scope: arguments of `fdgjax.aggregation.global_alignment`.
    compared: weights of the mean that updates are compared with, `updates` (equal) or `shares` (of the samples).
    l2, proximal: weights of `|theta|^2 / 2` and of `|theta - theta_received|^2 / 2` in the loss.
    """

    weighting: str = hyper("uniform", search=("uniform", "samples"), source="FedGaLA, section 4.2")
    local: bool = hyper(True, search=(True, False), source="FedGaLA, Table 3")
    threshold: float = hyper(0.0, least=-1, most=1, search=(-0.1, 0.0, 0.1), source="FedGaLA, Figure 3c")
    sign: str = hyper("descent", search=tuple(SIGNS), source="docs/deviations.md")
    reference: str = hyper("step", search=tuple(REFERENCES), source="FedGaLA, section 4.1")
    dropped: str = hyper("skip", search=tuple(DROPPED), source="FedGaLA, official code; docs/deviations.md")
    first_round: int = hyper(1, search=(1, 2), source="FedGaLA, section 4.1; official code: 2")
    globally: bool = hyper(True, search=(True, False), source="FedGaLA, Table 3")
    iterations: int = hyper(3, least=1, search=(1, 3, 5), source="FedGaLA, Figure 4b")
    gamma: float = hyper(0.0, most=1, search=(0.0, 0.25, 0.5, 0.75), source="FedGaLA, Table 6")
    scope: str = hyper("leaf", search=("leaf", "tree"), source="FedGaLA, official code")
    compared: str = hyper("updates", search=tuple(COMPARED), source="FedGaLA, section 4.2; official code: shares")
    l2: float = hyper(0.0, search=(0.0, 1e-2), source="FedGaLA, Table 4")
    proximal: float = hyper(0.0, search=(0.0, 1e-2), source="FedGaLA, Table 4")


def fedgala(setup: Setup, h: FedGaLA) -> Method:
    """Self-supervised clients with local and global alignment.

    Raises:
      UserError: an unknown word in `h`, or settings that the alignments do not accept.
    """
    base = fedsimclr(setup, h, regularise=partial(regularised, h), rule=rule_of(h))
    reference = lookup("reference", h.reference, REFERENCES)

    extended = extend(
        base,
        server=lambda fresh: optax.tree.zeros_like(fresh.server.variables["params"]) if h.local else {},
        sent=lambda server, row: server.more,
        message=lambda context, trained, row: discard_rate(trained.optimizer) if h.local else jnp.zeros(()),
    )

    def aggregate(
        server: Extended, clients: ClientVariables, messages: Extended, weights: jax.Array
    ) -> tuple[Message, PyTree]:
        step, coefficients = extended.aggregate(server, clients, messages, weights)
        return step, coefficients | {"discarded": messages.more}

    def update(
        server: Extended, clients: ClientVariables, step: Message, server_step: ServerStep
    ) -> tuple[Extended, ClientVariables]:
        after, clients = extended.update(server, clients, step, server_step)
        moved = optax.tree.sub(after.base.variables["params"], server.base.variables["params"])
        return after._replace(more=reference(moved, server_step.key) if h.local else {}), clients

    return extended._replace(
        optimizer=aligned_optimizer(h, setup.rounds) if h.local else base.optimizer,
        aggregate=aggregate,
        update=update,
        weights=WEIGHTINGS["samples"],
    )


def aligned_optimizer(h: FedGaLA, rounds: int) -> optax.GradientTransformation:
    """The client's optimiser with local alignment."""
    own = client_optimizer(h, rounds, change=lookup("dropped", h.dropped, DROPPED))
    sign = lookup("sign", h.sign, SIGNS)
    return align_with(own, reference_of, h.threshold, sign, h.first_round)


def reference_of(context: Context) -> PyTree:
    """The reference of each array that a client trains: what the server sends, and zero, which drops nothing, for those
    that stay at the client, such as a predictor."""
    sent = flatten(context.sent.more)
    own = flatten(context.received["params"])
    return unflatten({path: sent.get(path, jnp.zeros_like(leaf)) for path, leaf in own.items()})


def rule_of(h: FedGaLA) -> Rule:
    """The aggregation of updates; its weights are the clients' numbers of samples."""
    weigh, factors = lookup("weighting", h.weighting, WEIGHTINGS), lookup("compared", h.compared, COMPARED)
    align = partial(global_alignment, iterations=h.iterations, gamma=h.gamma, scope=h.scope)

    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        assert weights is not None
        shares = jnp.where(weights > 0, weigh(weights), 0)
        return align(updates, shares, factors=factors(weights)) if h.globally else mean(updates, shares)

    return rule


def regularised(h: FedGaLA, objective: Objective) -> Objective:
    """The loss with the two regularisers of Table 4."""

    def with_both(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, rest = objective(variables, batch, key, context)
        params = variables["params"]
        if h.l2:
            loss += 0.5 * h.l2 * optax.tree.norm(params, squared=True)
        if h.proximal:
            loss += 0.5 * h.proximal * optax.tree.norm(optax.tree.sub(params, context.received["params"]), squared=True)
        return loss, rest

    return with_both


ENTRY = Entry(
    "fedgala",
    FedGaLA,
    fedgala,
    "no labels: gradients aligned at clients and updates at the server (FedGaLA)",
    title="FedGaLA",
    head="projection",
    unlabelled=True,
    pooled=lambda h: h.pooled,
    presets=SIMCLR,
    needs=(PREDICTOR,),
)
