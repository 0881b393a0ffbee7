"""FedLGF (local and global flatness): predictions that adversarial perturbations of the last layer leave alone.

    L_i(w) = CE + alpha KL(q || p) + beta KL(q_received || p),    p the model's predictions for the batch

q are the predictions with the last layer W of the client's own model perturbed, q_received with that of the received
model; both are targets without a gradient:

    g  = gradient over d of KL(p || predictions with W moved by s d),    at a random d of length 1
    q  = predictions with W moved by r g / |g|

A move changes W's singular values, which stay non-negative, or its entries (then g / |g| is taken for each class). With
alpha = beta = 0 it is FedAvg. The global model predicts for an unseen domain.

Yan and Guo, "Local and global flatness for federated domain generalization", ECCV 2024, and its official code, which
perturbs every layer of a classifier of several.
"""

import dataclasses

from fdgjax.contract import Method, Setup
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.methods.parts.requirements import CLASSES, FEATURES, last_layer
from fdgjax.objectives.flatness import DIRECTIONS, Strengths, flat_head
from fdgjax.utils.registry import lookup

OFFICIAL = "Yan and Guo, official code"
PERTURBED = When(lambda h: bool(h.local_flatness or h.global_flatness))


@dataclasses.dataclass(frozen=True)
class FedLGF(FedAvg):
    """FedAvg's hyperparameters and those of the flatness.

    local_flatness: alpha, weight of KL(q || p). global_flatness: beta, weight of KL(q_received || p).
    perturbation: what changes in the last layer, an entry of `DIRECTIONS`.
    probe: s, the length of the move at which the gradient g is taken. radius: r, the length of the perturbation.
    """

    local_flatness: float = hyper(0.1, search=(0.0, 0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1")
    global_flatness: float = hyper(0.1, search=(0.0, 0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1")
    perturbation: str = hyper("singular", search=tuple(DIRECTIONS), source=f"{OFFICIAL}: singular", when=PERTURBED)
    probe: float = hyper(10.0, search=(0.1, 1.0, 10.0), source=f"{OFFICIAL}: 10", when=PERTURBED)
    radius: float = hyper(0.1, search=(0.01, 0.1, 1.0), source=f"{OFFICIAL}: 0.1", when=PERTURBED)


def fedlgf(setup: Setup, h: FedLGF) -> Method:
    """FedAvg with a flat last layer.

    Raises:
      UserError: an unknown perturbation.
    """
    objective = flat_head(
        setup.model,
        last_layer(setup.model),
        lookup("perturbation", h.perturbation, DIRECTIONS),
        Strengths(h.probe, h.radius),
        own=h.local_flatness,
        received=h.global_flatness,
    )
    return fedavg(setup, h, objective=objective)


ENTRY = Entry(
    "fedlgf",
    FedLGF,
    fedlgf,
    "a flat last layer, local and global (Yan & Guo, 2024)",
    title="FedLGF",
    needs=(CLASSES, FEATURES),
)
