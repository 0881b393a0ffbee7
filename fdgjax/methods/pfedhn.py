"""pFedHN: a server hypernetwork learned from the clients' updates by their plain mean.

Shamsian et al., "Personalized federated learning using hypernetworks", 2021. The original server serves one client a
step; here all clients of a round are averaged (the synchronous form, hFedF without alignment and smoothing), and
`clients_per_round=1` gives the original order of updates (docs/deviations.md).
Defaults and search ranges: hFedF v2, Table 10.
"""

import dataclasses

from fdgjax.contract import Method, ServerStep, Setup
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.generated_models import HyperNetHyper, HyperServer, HyperWeights, server_optimizer
from fdgjax.methods.parts.hyper import SERVER_LEARNING_RATES, TABLE_10, hyper
from fdgjax.methods.parts.hypernetwork_method import average, descend, hypernet
from fdgjax.methods.parts.setting_presets import BATCH_STATISTICS


@dataclasses.dataclass(frozen=True)
class PFedHN(HyperNetHyper):
    """pFedHN's hyperparameters."""

    client_weight_decay: float = hyper(1e-5, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)
    server_learning_rate: float = hyper(1e-2, above=0, search=SERVER_LEARNING_RATES, source=TABLE_10)
    server_weight_decay: float = hyper(1e-3, search=(1e-3, 1e-4, 1e-5), source=TABLE_10)


def pfedhn(setup: Setup, h: PFedHN) -> Method:
    """pFedHN with synchronous updates."""
    optimizer = server_optimizer(h)

    def update(server: HyperServer, gradient: HyperWeights, server_step: ServerStep) -> HyperServer:
        del server_step
        return descend(server, gradient, optimizer)

    return hypernet(setup, h, align=average, update=update)


ENTRY = Entry(
    "pfedhn",
    PFedHN,
    pfedhn,
    "hypernetwork, averaged gradients (Shamsian et al., 2021)",
    title="pFedHN",
    presets=BATCH_STATISTICS,
)
