"""FedGMA: an update counts in full only where clients agree on its sign.

    w <- w + eta m * sum_i p_i (w_i - w),    m = 1 where A >= tau, else A,    A = |sum_i v_i sign(w_i - w)|

number by number (`fdgjax.aggregation.gradient_mask`), eta being the server's learning rate. BatchNorm's statistics are
no gradients; they are averaged. With tau = 0 it is FedAvg. An unseen domain is predicted by w.

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


@dataclasses.dataclass(frozen=True)
class FedGMA(FedAvg):
    """FedAvg's hyperparameters and the mask: its threshold tau, what is left below it (`soft`: the share A, `hard`:
    nothing), and whether `votes` go by the aggregation's `weights` or are `equal`."""

    server_learning_rate: float = hyper(1.0, search=(1.0, 1e-1, 1e-2), source=TABLE_10)
    tau: float = hyper(0.7, search=(0.3, 0.5, 0.7), source=TABLE_10)
    mask: str = hyper("soft", search=("soft", "hard"), source="Tenison et al., Algorithm 1: soft")
    votes: str = hyper("weights", search=("weights", "equal"), source="docs/deviations.md")


def fedgma(setup: Setup, h: FedGMA) -> Method:
    """FedAvg with a masked mean.

    Raises:
      UserError: an unknown word or a threshold outside of [0, 1], as soon as it aggregates.
    """
    masked = partial(gradient_mask, tau=h.tau, mask=h.mask, votes=h.votes)

    def rule(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        update, coefficients = mean(updates, weights)
        params, _ = masked(updates["params"], weights)
        return {**update, "params": params}, coefficients

    return fedavg(setup, h, rule=rule)


ENTRY = Entry("fedgma", FedGMA, fedgma, "updates masked where clients' signs disagree (Tenison et al., 2023)")
