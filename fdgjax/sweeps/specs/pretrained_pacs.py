"""PACS on ImageNet features: twenty-three methods under one protocol, each domain unseen in turn, three seeds.

    fdgjax sweep pretrained_pacs --out runs/pretrained-pacs --data_dir DATA
    fdgjax sweep pretrained_pacs --out runs/pretrained-pacs --data_dir DATA --only fedavg

From no paper: EfficientNet-Lite0 at 128 pixels, frozen up to its last block, five rounds of one epoch (the preset
`pretrained_pacs`). Names: METHOD-TARGET. With photo unseen, a cell of three seeds takes 170 seconds on one core with
FedAvg, and 260 (and 6 GB) with hFedF; the features, 117 MiB, are computed once for all cells. With
`--scale whole` all layers are trained, augmented, at a smaller rate (at 1e-3 FedAvg's loss grows with sketch unseen): a
seed takes 10 minutes with FedAvg, 20 (and 8 GB) with hFedF.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

TARGETS = ("photo", "art_painting", "cartoon", "sketch")
FIGURES = ("id_accuracy", "ood_accuracy")
SCALES = {
    "paper": Scale("pretrained_pacs", {"seeds": 3}),
    "whole": Scale(
        "pretrained_pacs",
        {
            "model": {"frozen": 0},
            "data": {"image_size": 146, "crop_size": 128, "augmentation": "domainbed"},
            "method": {"client_learning_rate": 3e-4},
        },
        note="all layers are trained, on augmented images",
    ),
}
METHODS = (
    *("fedavg", "fedprox", "hfedf", "pfedhn", "fedsr", "fedgma", "feddg_ga"),
    *("fedomg", "fediir"),
    *("fedbn", "moon", "scaffold", "ditto", "local"),
    *("ssfl", "uap"),  # the first of the other domains is the server's, with labels; the clients have none
    *("central", "coral", "mixup", "groupdro", "mmd", "irm", "fishr"),
)


def cells(scale: str) -> Sequence[Cell]:
    """All methods on one unseen domain, then on the next."""
    return for_every_target(lookup("scale", scale, SCALES), METHODS)


def for_every_target(chosen: Scale, methods: Sequence[str]) -> list[Cell]:
    """Each method with each domain unseen in turn."""
    return [
        at_scale(f"{method}-{target}", method, chosen, FIGURES, method, data={"target": target})
        for target in TARGETS
        for method in methods
    ]
