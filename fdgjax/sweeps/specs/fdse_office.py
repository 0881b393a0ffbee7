"""FDSE, Table 1: Office-Caltech10, each domain a client, ALL and AVG.

    fdgjax reproduce fdse-office --out runs/fdse-office --data_dir DATA

Names: METHOD.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, configured
from fdgjax.sweeps.specs.fdse_office_ablation import SCALES
from fdgjax.sweeps.specs.fdse_pacs import FIGURES, METHODS, RATES
from fdgjax.utils.registry import lookup


def cells(scale: str) -> Sequence[Cell]:
    """One run for each method."""
    chosen = lookup("scale", scale, SCALES)
    return [Cell(method, configured(method, chosen), FIGURES, reduced=chosen.reduced, note=RATES) for method in METHODS]
