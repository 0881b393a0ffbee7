"""FedGMA: an update counts in full only where clients agree on its sign.

    w <- w + eta m * sum_i p_i (w_i - w),    m = 1 where A >= tau, else A,    A = |sum_i v_i sign(w_i - w)|

elementwise (`fdgjax.aggregation.gradient_mask`), eta being the server's learning rate. BatchNorm's statistics are
averaged without a mask. With tau = 0 it is FedAvg. w predicts for an unseen domain.

Tenison et al., "Gradient masked averaging for federated learning", TMLR 2023, Algorithm 1.

References:
  Defaults and search ranges: hFedF v2, Table 10.
"""

import dataclasses
from functools import partial

from fdgjax.aggregation import gradient_mask, mean
from fdgjax.contract import Method, PyTree, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import TABLE_10, hyper
from fdgjax.methods.parts.requirements import SEVERAL_PARTICIPANTS


@dataclasses.dataclass(frozen=True)
class FedGMA(FedAvg):
    """FedAvg's hyperparameters and the mask's.

    tau: threshold of the agreement A. mask: factor on an update whose A is below tau, `soft` (A) or `hard` (0).
    votes: v, the weights of the clients' signs: the aggregation's `weights`, or `equal`.
    """

    server_learning_rate: float = hyper(1.0, above=0, search=(1.0, 1e-1, 1e-2), source=TABLE_10)
    tau: float = hyper(0.7, most=1, search=(0.3, 0.5, 0.7), source=TABLE_10)
    mask: str = hyper("soft", search=("soft", "hard"), source="Tenison et al., Algorithm 1: soft")
    votes: str = hyper("weights", search=("weights", "equal"), source="docs/deviations.md")


def fedgma(setup: Setup, h: FedGMA) -> Method:
    """FedAvg with a masked mean.

    Raises:
      UserError: an unknown mask or votes, or a tau outside [0, 1], at the first aggregation.
    """
    masked = partial(gradient_mask, tau=h.tau, mask=h.mask, votes=h.votes)

    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        update, coefficients = mean(updates, weights)
        params, _ = masked(updates["params"], weights)
        return {**update, "params": params}, coefficients

    return fedavg(setup, h, rule=rule)


ENTRY = Entry(
    "fedgma",
    FedGMA,
    fedgma,
    "updates masked where clients' signs disagree (Tenison et al., 2023)",
    title="FedGMA",
    needs=(SEVERAL_PARTICIPANTS,),
)
