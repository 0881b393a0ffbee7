"""FedSAM: FedAvg whose clients minimise the largest loss within a radius rho of their parameters.

    g   = grad L_i(w; batch)
    eps = rho g / |g|                                   |g| over all parameters together
    w   <- w - eta grad L_i(w + eps; batch)             or any optimiser's step with this gradient

With rho = 0 it is FedAvg. A step costs two gradients. Only the local step changes, so that every method has it:
`method.sharpness=RHO` (`fdgjax.methods.parts.sharpness`). The server's model predicts for an unseen domain.

Qu, Li, Duan, Liu, Tang and Lu, "Generalized federated learning via sharpness aware minimization", ICML 2022, and
Caldarola, Caputo and Ciccone, "Improving generalization in federated learning by seeking flat minima", ECCV 2022; the
step is that of Foret et al., 2021.
"""

import dataclasses

from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import hyper


@dataclasses.dataclass(frozen=True)
class FedSAM(FedAvg):
    """FedAvg's hyperparameters, with a radius."""

    sharpness: float = hyper(0.1, search=(0.01, 0.05, 0.1, 0.5), source="Caldarola et al., official code: 0.1")


ENTRY = Entry("fedsam", FedSAM, fedavg, "local steps from the worst point near w (Qu et al., 2022)", title="FedSAM")
