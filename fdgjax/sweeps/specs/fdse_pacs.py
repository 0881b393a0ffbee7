"""FDSE, Table 1: PACS, each domain a client, ALL and AVG.

    fdgjax reproduce fdse-pacs --out runs/fdse-pacs --data_dir DATA

Names: METHOD.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

SCALES = {
    "paper": Scale("fdse_pacs", {"seeds": 5}),
    "cpu": Scale(
        "fdse_pacs_small",
        {},
        "64 pixels instead of 224, a quarter of the channels, 20 rounds instead of 500, one seed instead of five",
    ),
}
FIGURES = ("all_accuracy", "avg_accuracy")
METHODS = (
    *("fdse", "fedavg", "fedbn", "ditto", "local", "partialfed", "lgfedavg"),
    *("fedprox", "scaffold", "feddyn", "moon", "fedfa", "fedheal"),
)
RATES = "the paper takes the best of five learning rates for each method"


def cells(scale: str) -> Sequence[Cell]:
    """One run for each method."""
    chosen = lookup("scale", scale, SCALES)
    return [at_scale(method, method, chosen, FIGURES, "", RATES) for method in METHODS]
