"""PACS from scratch: methods that cannot use stored ImageNet features, and FedAvg; every domain unseen in turn.

    fdgjax sweep pacs_small --out runs/pacs-small --data_dir DATA

From no paper: a ResNet with one block per stage, a quarter of its channels, 32 pixels, 20 rounds of one epoch, one
seed. gPerXAN's assembled units have no values in the file of a pretrained network, and FedCCRL changes the images in
every step. Names: METHOD-TARGET. FedAvg and gPerXAN take two minutes on one core, FedCCRL ten.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale
from fdgjax.sweeps.specs.pretrained_pacs import for_every_target
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale(
        "pacs",
        {"rounds": 20, "local_epochs": 1, "eval_every": 20, "model": {"name": "resnet10", "width": 0.25}},
    )
}
METHODS = ("fedavg", "gperxan", "fedccrl")


def cells(scale: str) -> Sequence[Cell]:
    """All methods on one unseen domain, then on the next."""
    return for_every_target(lookup("scale", scale, SCALES), METHODS)
