"""FedBN: FedAvg whose clients keep their BatchNorm layers, parameters and statistics.

    label(BatchNorm) = local, everything else shared

Li et al., "FedBN: federated learning on non-IID features via local batch normalization", 2021, Algorithm 1. On a model
without BatchNorm it is FedAvg: an experiment takes `model.unit=norm` or is refused.

Unseen domain: one model with the mean of the BatchNorm layers of clients that have trained, or each client's own;
adapted to the domain by collecting its statistics in passes without gradients (FDSE, Algorithm 2), by default five,
as many as in FDSE's official code for FedBN and in FDSE's own adaptation. After k steps the received statistics have
the weight `0.9^k`: with four batches, one pass leaves 66 % of them, five leave 12 %.
"""

import dataclasses

import optax

from fdgjax.contract import Method, Setup, Unlabelled, Variables
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import BATCH_NORM, SEVERAL_CLIENTS
from fdgjax.methods.parts.server_state import WEIGHTINGS
from fdgjax.methods.parts.setting_presets import BATCH_STATISTICS, official_fdse
from fdgjax.methods.parts.sharing import of_trained
from fdgjax.objectives import statistics_only
from fdgjax.utils.variables import module_of, norm_paths


@dataclasses.dataclass(frozen=True)
class FedBN(FedAvg):
    """FedAvg's hyperparameters; adaptation_epochs: passes over the unseen domain, 0 for none."""

    unseen: str = hyper("mean", search=("each", "mean"), source="one model in FDSE, Algorithm 2")
    adaptation_epochs: int = hyper(5, search=(0, 1, 5), source="FDSE, official code for FedBN: 5; FDSE, A7.5: 1")


def fedbn(setup: Setup, h: FedBN) -> Method:
    """FedAvg with BatchNorm layers that stay at the clients."""
    norms = norm_paths(setup.model.shapes())
    collect = statistics_only(setup.model)

    def adapt(variables: Variables, domain: Unlabelled) -> Variables:
        return domain.fit(variables, collect, optax.set_to_zero(), h.adaptation_epochs)

    method = fedavg(setup, h, label=lambda path: "local" if module_of(path) in norms else "shared")
    method = method._replace(adapt=adapt if norms and h.adaptation_epochs else None)
    return of_trained(method, h.unseen if norms else "", WEIGHTINGS["uniform"])


ENTRY = Entry(
    "fedbn",
    FedBN,
    fedbn,
    "FedAvg with BatchNorm layers that stay local (Li et al., 2021)",
    title="FedBN",
    needs=(BATCH_NORM, SEVERAL_CLIENTS),
    presets={**official_fdse(pacs={"client_learning_rate": 0.1}), **BATCH_STATISTICS},
)
