"""FedHEAL: parameters with inconsistent updates are masked, and clients that move farther get larger weights.

For client i in the t-th round it takes part in, with update u_i and `r_i` the elementwise share of its former updates
that were not negative:

    m_i    = [ (r_i where u_i >= 0, else 1 - r_i) > tau ],  all true for t = 1
    d_i    = sum over tensors |m_i u_i|
    e_i   <- (1 - beta) e_i + beta d_i / sum_S d_j;    a_i <- a_i + e_i;    p_i = n_i / sum_S n_j + a_i
    w     <- w + sum_S p_i m_i u_i / sum_S p_i m_i      (elementwise; zero where all masks are)

Chen, Huang and Ye, "Fair federated learning under domain skew with local consistency and domain diversity", CVPR 2024,
and its official code, which takes the distance as a sum of the tensors' norms (parameters only) and masks statistics as
it masks parameters. n are the usual weights (uniform in the official code, one over the number of clients in a round),
S the round's clients; e and a start as zero.

The server keeps a client's history in the client's row; clients send updates only. w predicts for an unseen domain.

References:
  Search range of tau: FDSE, A7.4.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation import masked_update_mean
from fdgjax.aggregation.updates import rows, sum_over_leaves
from fdgjax.aggregation.weighting import keep_rows, normalise_weights, per_row
from fdgjax.contract import Method, PyTree, ServerStep, Setup, Variables
from fdgjax.methods.fedavg import FedAvg, Message, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, RowExtension, extend
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.server_state import ServerState
from fdgjax.methods.parts.setting_presets import official_fdse


@dataclasses.dataclass(frozen=True)
class FedHeal(FedAvg):
    """FedAvg's hyperparameters and those of both mechanisms.

    tau: the consistency that an update must exceed. beta: the weights' momentum.
    """

    weighting: str = hyper("uniform", search=("uniform", "samples"), source="Chen et al., official code")
    tau: float = hyper(
        0.3, most=1, search=(0.1, 0.2, 0.3, 0.4, 0.5), source="FDSE, A7.4; Chen et al., official code: 0.3"
    )
    beta: float = hyper(0.4, most=1, search=(0.2, 0.4, 0.6, 0.8), source="Chen et al., official code: 0.4")


class RiseHistory(NamedTuple):
    """A client's history: r, the number of rounds it covers, the weight's growth a and its last change e."""

    rises: Variables
    rounds: jax.Array
    growth: jax.Array
    change: jax.Array


def consistent_elements(history: RiseHistory, updates: Variables, tau: float) -> PyTree:
    """m `[clients, ...]`: which elements of the updates keep their usual direction."""

    def one(rises: jax.Array, u: jax.Array) -> jax.Array:
        agreed = jnp.where(u >= 0, rises, 1 - rises)
        return (agreed > tau) | per_row(history.rounds == 0, u.ndim)

    return jax.tree.map(one, history.rises, updates)


def remember(history: RiseHistory, updates: Variables) -> RiseHistory:
    """The histories, updated with the signs of these updates."""
    before = history.rounds.astype(jnp.float32)

    def one(rises: jax.Array, u: jax.Array) -> jax.Array:
        count = per_row(before, u.ndim)
        return (rises * count + (u >= 0).astype(jnp.float32)) / (count + 1)

    return history._replace(rises=jax.tree.map(one, history.rises, updates), rounds=history.rounds + 1)


def masked_norms(updates: PyTree, masks: PyTree) -> jax.Array:
    """d `[clients]`: the norms of the masked tensors, summed."""
    return sum_over_leaves(jax.tree.map(lambda u, m: jnp.linalg.norm(rows(jnp.where(m, u, 0)), axis=1), updates, masks))


def fedheal(setup: Setup, h: FedHeal) -> Method:
    """FedAvg with FedHEAL's masks and weights."""
    base = fedavg(setup, h)

    def begin(fresh: Fresh) -> RiseHistory:
        clients = len(fresh.federation.ids)
        nothing = jax.tree.map(jnp.zeros_like, fresh.models())
        return RiseHistory(nothing, jnp.zeros(clients, jnp.int32), jnp.zeros(clients), jnp.zeros(clients))

    extended = extend(base, row=RowExtension(begin))

    def aggregate(
        server: ServerState, clients: Extended, messages: Message, weights: jax.Array
    ) -> tuple[Extended, PyTree]:
        del server
        updates, former, there = messages.update, clients.more, weights > 0
        masks = consistent_elements(former, updates, h.tau)
        shares = normalise_weights(jnp.where(there, masked_norms(updates["params"], masks["params"]), 0), len(weights))
        change = (1 - h.beta) * former.change + h.beta * shares
        after = remember(former, updates)._replace(growth=former.growth + change, change=change)
        grown = normalise_weights(weights, len(weights)) + after.growth
        update, used = masked_update_mean(updates, masks, jnp.where(there, grown, 0))
        return Extended(Message(update, messages.personal), keep_rows(there, after, former)), {"weights": used}

    def update(
        server: ServerState, clients: Extended, step: Extended, server_step: ServerStep
    ) -> tuple[ServerState, Extended]:
        server, clients = extended.update(server, clients, step.base, server_step)
        return server, clients._replace(more=step.more)

    return extended._replace(aggregate=aggregate, update=update, averaged=False)


ENTRY = Entry(
    "fedheal",
    FedHeal,
    fedheal,
    "consistent updates, weights by distance (Chen et al., 2024)",
    title="FedHEAL",
    presets=official_fdse(pacs={"tau": 0.1, "client_learning_rate": 0.1}, office={"tau": 0.2}),
)
