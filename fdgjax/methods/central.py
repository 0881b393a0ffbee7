"""Central: centralised training on the pooled data, the reference without federation.

hFedF v2, section 5.1, with FedAvg's hyperparameters (appendix C.8.2). A round is `local_epochs` passes over the pooled
data, so that training budgets are comparable. It equals FedAvg with one client.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper


@dataclasses.dataclass(frozen=True)
class Central(FedAvg):
    """FedAvg's hyperparameters; the optimiser's state is kept between rounds.

    keep_optimizer: whether it is.
    """

    keep_optimizer: bool = hyper(True, search=(True, False), source="nothing interrupts central training")


def central(setup: Setup, h: Central) -> Method:
    """FedAvg over one client that holds all training data."""
    return fedavg(setup, h)._replace(keep_optimizer=h.keep_optimizer, pooled=True)


ENTRY = Entry("central", Central, central, "centralised training on pooled data, the reference without federation")
