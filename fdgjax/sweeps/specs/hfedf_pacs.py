"""hFedF v2, Table 11: PACS with one domain per client (d = 1), every domain the unseen one in turn.

    fdgjax sweep hfedf_pacs --out runs/hfedf-pacs --data_dir DATA
    fdgjax sweep hfedf_pacs --out runs/hfedf-pacs-cpu --data_dir DATA --scale cpu
    fdgjax sweep hfedf_pacs --out runs/hfedf-pacs-plain --data_dir DATA --scale plain

Names: METHOD-TARGET.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

TARGETS = ("photo", "art_painting", "cartoon", "sketch")
FIGURES = ("id_accuracy", "ood_accuracy")

SCALES = {
    "paper": Scale(
        "hfedf_pacs",
        {"seeds": 3},
        note="augmented as by DomainBed, of which the paper says that it follows its guidelines; 32 pixels of 64",
    ),
    "plain": Scale("pacs", {"seeds": 3}, note="the same without augmentation"),
    "cpu": Scale(
        "pacs",
        {"rounds": 25, "model": {"width": 0.25}},
        "a quarter of the channels, 25 rounds instead of 200, one seed instead of three",
    ),
}

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hfedf": ("hfedf", {}),
    "hfedf_without_gradalign": ("hfedf", {"alignment": "none"}),
    "fedavg": ("fedavg", {}),
    "local": ("local", {}),
    "fedprox": ("fedprox", {}),
    "pfedhn": ("pfedhn", {}),
    "fedsr": ("fedsr", {}),
    "fedgma": ("fedgma", {}),
}
"""The table's rows: a config file, and what differs from its method."""


def cells(scale: str) -> Sequence[Cell]:
    """All methods on one unseen domain, then on the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(f"{row}-{target}", method, chosen, FIGURES, row, data={"target": target}, method=changes)
        for target in TARGETS
        for row, (method, changes) in METHODS.items()
    ]
