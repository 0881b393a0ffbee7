"""FDSE, Table 3: Office-Caltech10 without consensus (A), attention over personal parameters (B), or the consistency
loss (C).

    fdgjax reproduce fdse-office-ablation --out runs/fdse-office-ablation --data_dir DATA

Names: the parts that are kept.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale
from fdgjax.sweeps.specs.fdse_ablation import for_every_row
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale("fdse_office_caltech10", {"seeds": 5}),
    "cpu": Scale(
        "fdse_office_caltech10_paper",
        {"seeds": 5, "rounds": 100, "eval_every": 10, "data": {"image_size": 64}, "model": {"width": 0.25}},
        "64 pixels instead of 224, a quarter of the channels, 100 rounds instead of 500",
    ),
}


def cells(scale: str) -> Sequence[Cell]:
    """One run for each row of the table."""
    return for_every_row(lookup("scale", scale, SCALES))
