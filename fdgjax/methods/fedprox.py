"""FedProx: FedAvg with a proximal term to the received model, `L_i(w) + mu/2 |w - w_received|^2`.

Li et al., "Federated optimization in heterogeneous networks", 2020. With mu = 0 it is FedAvg.
Defaults and search ranges: hFedF v2, Table 10.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import TABLE_10, hyper
from fdgjax.objectives import cross_entropy, proximal


@dataclasses.dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg's hyperparameters and the proximal term's.

    mu: strength of the proximal term.
    """

    mu: float = hyper(1e-2, search=(1e-1, 1e-2, 1e-3), source=TABLE_10)


def fedprox(setup: Setup, h: FedProx) -> Method:
    """FedAvg with a proximal term."""
    return fedavg(setup, h, objective=proximal(cross_entropy(setup.model), h.mu))


ENTRY = Entry("fedprox", FedProx, fedprox, "FedAvg with a proximal term (Li et al., 2020)", title="FedProx")
