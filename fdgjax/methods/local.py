"""Local: each client trains alone and sends nothing; on an unseen domain the clients' accuracies are averaged.

hFedF v2, section 5.1 ("Local-Only"), with FedAvg's hyperparameters (appendix C.8.2).
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper


@dataclasses.dataclass(frozen=True)
class Local(FedAvg):
    """FedAvg's hyperparameters.

    keep_optimizer: whether a client, whose model is never overwritten, keeps its optimiser's state between rounds, too.
    """

    keep_optimizer: bool = hyper(True, search=(True, False), source="no communication to reset it")


def everything_local(path: str) -> str:
    """Local's labels: nothing leaves the client."""
    del path
    return "local"


def local(setup: Setup, h: Local) -> Method:
    """FedAvg in which every variable stays at its client."""
    return fedavg(setup, h, label=everything_local)


ENTRY = Entry("local", Local, local, "each client trains alone, nothing is sent", title="Local")
