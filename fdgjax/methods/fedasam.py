"""FedASAM: FedSAM whose neighbourhood stretches with each parameter's size.

    g   = grad L_i(w; batch);    T = diag(|w| + eta)
    eps = rho T^2 g / |T g|                             |.| over all parameters together
    w   <- w - learning rate * grad L_i(w + eps; batch)

so that scaling one layer up and the next one down does not change the neighbourhood. With rho = 0 it is FedAvg, with
T = 1 FedSAM. Every method has this step: `method.sharpness=RHO method.sharpness_kind=asam`. The server's model predicts
for an unseen domain.

Caldarola, Caputo and Ciccone, "Improving generalization in federated learning by seeking flat minima", ECCV 2022; the
step is that of Kwon et al., "ASAM: adaptive sharpness-aware minimization for scale-invariant learning of deep neural
networks", ICML 2021.
"""

import dataclasses

from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import SHARP, hyper
from fdgjax.methods.parts.sharpness import KINDS

OFFICIAL = "Caldarola et al., official code"


@dataclasses.dataclass(frozen=True)
class FedASAM(FedAvg):
    """FedAvg's hyperparameters, with a radius and eta."""

    sharpness: float = hyper(0.7, search=(0.1, 0.5, 0.7, 1.0), source=f"{OFFICIAL}: 0.7")
    sharpness_kind: str = hyper("asam", search=tuple(KINDS), source="Caldarola et al., 2022", when=SHARP)
    sharpness_eta: float = hyper(0.2, search=(0.01, 0.1, 0.2), source=f"{OFFICIAL}: 0.2", when=SHARP)


ENTRY = Entry(
    "fedasam", FedASAM, fedavg, "FedSAM, scaled by each parameter's size (Caldarola et al., 2022)", title="FedASAM"
)
