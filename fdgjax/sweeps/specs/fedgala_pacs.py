"""FedGaLA, Table 1: PACS without labels, a linear probe on 10 % and 30 % of the unseen domain's labels.

    fdgjax reproduce fedgala-pacs --out runs/fedgala-pacs --data_dir DATA

Names: METHOD-TARGET.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.sweeps.specs.hfedf_pacs import TARGETS
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale("fedgala_pacs", {"seeds": 3}),
    "cpu": Scale(
        "fedgala_pacs_small",
        {},
        "ResNet-10 with a quarter of the channels instead of ResNet-18, 40 rounds of 2 epochs instead of 100 of 7, "
        "batches of 64 instead of 128, the probe on features instead of the projection, larger crops, one seed",
    ),
}
FIGURES = ("probe_by_percent.10", "probe_by_percent.30")
METHODS = ("fedgala", "fedsimclr", "fedmoco", "fedbyol", "fedsimsiam", "fedema")


def cells(scale: str) -> Sequence[Cell]:
    """All methods on one unseen domain, then on the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(f"{method}-{target}", method, chosen, FIGURES, method, data={"target": target})
        for target in TARGETS
        for method in METHODS
    ]
