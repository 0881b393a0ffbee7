"""FedOMG: the server steps along the direction near the mean update on which clients agree most.

    w <- w + eta u,    u = g + kappa |g| / |sum_i gamma_i u_i| * sum_i gamma_i u_i,    g = sum_i p_i u_i
    gamma = argmin over the simplex of  <sum_i gamma_i u_i, g> + kappa |g| |sum_i gamma_i u_i|

with the updates `u_i = w_i - w` of all parameters together (`fdgjax.aggregation.gradient_matching`); eta is the
server's learning rate. BatchNorm's statistics are averaged. With kappa = 0 it is FedAvg. Clients have no extra cost; w
predicts for an unseen domain.

The official code's step (`scale=official`) is of `p_i u_i` instead of u_i, with g their plain mean, divided by
`1 + kappa^2` and times the rate of its PACS settings, 0.5. With three clients it has about a fifth of the length of
FedAvg's step, the paper's up to 1.5 times that length.

Nguyen, Nguyen, Park, Pham and Hwang, "Federated domain generalization with data-free on-server matching gradient",
ICLR 2025, and its official code.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.aggregation import gradient_matching, mean
from fdgjax.aggregation.gradient_matching import FACTORS, SOLVERS
from fdgjax.aggregation.updates import scale_rows
from fdgjax.aggregation.weighting import client_count, normalise_weights
from fdgjax.contract import Method, PyTree, Rule, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import SEVERAL_PARTICIPANTS

OFFICIAL = "Nguyen et al., official code"

OFFICIAL_RATE = 0.5
"""The server's learning rate in the official settings for PACS."""


@dataclasses.dataclass(frozen=True)
class FedOMG(FedAvg):
    """FedAvg's hyperparameters and those of the matching.

    kappa: radius of the search around the mean update, relative to the mean's norm. scale: what the step is divided by,
      an entry of `FACTORS`; with `official` the step of parameters is the official code's, so that
      `server_learning_rate=1` is its 0.5 for PACS. solver: how gamma is found, an entry of `SOLVERS`.
    """

    kappa: float = hyper(0.5, search=(0.1, 0.25, 0.5, 0.75), source=f"{OFFICIAL}: 0.5")
    scale: str = hyper("paper", search=tuple(FACTORS), source="docs/deviations.md")
    solver: str = hyper("exact", search=tuple(SOLVERS), source=f"{OFFICIAL}: descent")


def fedomg(setup: Setup, h: FedOMG) -> Method:
    """FedAvg with matched gradients.

    Raises:
      UserError: an unknown scale or solver, or a negative kappa, at the first aggregation.
    """
    matched = partial(gradient_matching, kappa=h.kappa, scale=h.scale, solver=h.solver)

    step = partial(of_shares, matched) if h.scale == "official" else matched

    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        update, _ = mean(updates, weights)
        params, coefficients = step(updates["params"], weights)
        return {**update, "params": params}, coefficients

    return fedavg(setup, h, rule=rule)._replace(averaged=False)


def of_shares(matched: Rule, updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
    """The official code's step: the matched step of each update times its client's share, of which all weigh the same,
    times the official rate; and the factors of the updates."""
    shares = normalise_weights(weights, client_count(updates))
    scaled = jax.tree.map(lambda leaf: scale_rows(leaf, shares), updates)
    step, coefficients = matched(scaled, (shares > 0).astype(jnp.float32))
    return jax.tree.map(lambda leaf: OFFICIAL_RATE * leaf, step), OFFICIAL_RATE * shares * coefficients


ENTRY = Entry(
    "fedomg",
    FedOMG,
    fedomg,
    "the step near the mean that clients agree on most (Nguyen et al., 2025)",
    title="FedOMG",
    needs=(SEVERAL_PARTICIPANTS,),
)
