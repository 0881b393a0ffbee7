"""FedLESAM: a client looks for flatness in the direction from which the global model came.

    eps = rho (w_previous - w_received) / |w_previous - w_received|
    w   <- w - eta grad L_i(w + eps; batch)             one gradient a step, as in FedAvg

w_received is what the client received in this round, w_previous in the last one that it took part in, at first the
initial model; the norm is over all parameters together. The change of the global model, reversed, estimates the
gradient of the loss over all clients, which a client's own data do not show. With rho = 0, and in the first round, it
is FedAvg. Nothing more is sent: w_previous stays in the client's row.

Every method has this step: `method.sharpness=RHO method.sharpness_kind=lesam`; with `scaffold` it is the
paper's FedLESAM-S, with `feddyn` nearly its FedLESAM-D. The server's model predicts for an unseen domain.

Fan, Hu, Yao, Niu, Zhang, Sugiyama and Wang, "Locally estimated global perturbations are better than local perturbations
for federated sharpness-aware minimization", ICML 2024.
"""

import dataclasses

from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import SHARP, hyper
from fdgjax.methods.parts.sharpness import KINDS

OFFICIAL = "Fan et al., official code"


@dataclasses.dataclass(frozen=True)
class FedLESAM(FedAvg):
    """FedAvg's hyperparameters, with a radius."""

    sharpness: float = hyper(0.1, search=(0.01, 0.05, 0.1, 0.5), source=f"{OFFICIAL}: 0.1")
    sharpness_kind: str = hyper("lesam", search=tuple(KINDS), source="Fan et al., 2024", when=SHARP)


ENTRY = Entry(
    "fedlesam", FedLESAM, fedavg, "local steps behind the global model's path (Fan et al., 2024)", title="FedLESAM"
)
