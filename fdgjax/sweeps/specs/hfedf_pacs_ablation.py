"""hFedF on PACS without its parts (v1, Table 5) and with other embeddings (v1, Table 6; v2, Table 7), d = 1, 2, 3.

    fdgjax reproduce hfedf-pacs-ablation --out runs/hfedf-pacs-ablation --data_dir DATA

At a reduced scale d is 1. Names: VARIANT-dD-TARGET.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, at_scale
from fdgjax.sweeps.specs.hfedf_pacs import FIGURES, SCALES, TARGETS
from fdgjax.utils.registry import lookup

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "hfedf": {},
    "without_gradalign": {"alignment": "none"},
    "without_ema": {"ema": 1.0},
    "without_both": {"alignment": "none", "ema": 1.0},
    "random_embeddings": {"embeddings": "random"},
    "fixed_embeddings": {"embeddings": "fixed"},
}
"""Rows of the tables, and the hyperparameters that make them; the paper shows fixed embeddings only in a figure."""


def cells(scale: str) -> Sequence[Cell]:
    """All variants with one d and target, then with the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(
            f"{variant}-d{d}-{target}",
            "hfedf",
            chosen,
            FIGURES,
            f"{variant}-d{d}",
            data={"target": target, "domains_per_client": d},
            method=changes,
        )
        for d in ((1,) if chosen.reduced else (1, 2, 3))
        for target in TARGETS
        for variant, changes in VARIANTS.items()
    ]
