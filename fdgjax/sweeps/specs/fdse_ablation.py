"""FDSE, Table 3: PACS without consensus (A), attention over personal parameters (B), or the consistency loss (C).

    fdgjax reproduce fdse-ablation --out runs/fdse-ablation --data_dir DATA

Names: the parts that are kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.sweeps.specs.fdse_pacs import FIGURES, SCALES
from fdgjax.utils.registry import lookup

WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "A": {"consensus": "mean"},
    "B": {"personalisation": "own"},
    "C": {"consistency": "none"},
}
"""What replaces each part."""

ROWS = ("ABC", "BC", "AC", "AB", "none")


def cells(scale: str) -> Sequence[Cell]:
    """One run for each row of the table."""
    return for_every_row(lookup("scale", scale, SCALES))


def for_every_row(chosen: Scale) -> list[Cell]:
    """FDSE with the parts of each row alone."""
    return [at_scale(row, "fdse", chosen, FIGURES, method=without(row)) for row in ROWS]


def without(row: str) -> Mapping[str, Any]:
    """FDSE's hyperparameters with only the parts that a row keeps."""
    return {key: value for part, changes in WITHOUT.items() if part not in row for key, value in changes.items()}
