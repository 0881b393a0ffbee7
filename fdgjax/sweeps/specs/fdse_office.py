"""FDSE, Table 1: Office-Caltech10, each domain a client, ALL and AVG.

    fdgjax reproduce fdse-office --out runs/fdse-office --data_dir DATA

Names: METHOD.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, at_scale
from fdgjax.sweeps.specs.fdse_office_ablation import SCALES
from fdgjax.sweeps.specs.fdse_pacs import FIGURES, METHODS, RATES
from fdgjax.utils.registry import lookup


def cells(scale: str) -> Sequence[Cell]:
    """One run for each method."""
    chosen = lookup("scale", scale, SCALES)
    return [at_scale(method, method, chosen, FIGURES, "", RATES) for method in METHODS]
