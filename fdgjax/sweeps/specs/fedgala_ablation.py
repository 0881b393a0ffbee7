"""FedGaLA, Tables 3 and 4: PACS without global or local alignment, or with a regulariser; a probe on 10 % of labels.

    fdgjax reproduce fedgala-ablation --out runs/fedgala-ablation --data_dir DATA

Names: VARIANT-TARGET.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, at_scale
from fdgjax.sweeps.specs.fedgala_pacs import SCALES
from fdgjax.sweeps.specs.hfedf_pacs import TARGETS
from fdgjax.utils.registry import lookup

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "fedgala": {},
    "without_global": {"globally": False},
    "without_local": {"local": False},
    "without_both": {"globally": False, "local": False},
    "l2": {"l2": 1e-2},
    "proximal": {"proximal": 1e-2},
}
"""Rows of the tables, and the hyperparameters that make them."""

COEFFICIENT = "the weight of the regulariser is ours"


def cells(scale: str) -> Sequence[Cell]:
    """All variants on one unseen domain, then on the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(
            f"{variant}-{target}",
            "fedgala",
            chosen,
            ("probe_by_percent.10",),
            variant,
            COEFFICIENT if variant in ("l2", "proximal") else "",
            data={"target": target},
            method=changes,
        )
        for target in TARGETS
        for variant, changes in VARIANTS.items()
    ]
