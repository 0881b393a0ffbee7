"""hFedF v2, Figure 3: PACS, d = 1, with a few samples of the unseen domain for each client.

    fdgjax reproduce hfedf-fewshot --out runs/hfedf-fewshot --data_dir DATA

The paper shows curves: no figures are published, and the numbers of shots are ours. At the scale `cpu` the unseen
domain is photo (as in v1, Figure 13). Names: METHOD-SHOTS-TARGET.
"""

from collections.abc import Sequence

from fdgjax.sweeps.cells import Cell, at_scale
from fdgjax.sweeps.specs.hfedf_pacs import FIGURES, SCALES, TARGETS
from fdgjax.utils.registry import lookup

METHODS = ("hfedf", "fedavg", "fedsr")
SHOTS = (0, 5, 10, 20)


def cells(scale: str) -> Sequence[Cell]:
    """All methods with one number of shots, then with the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(
            f"{method}-{shots}-{target}",
            method,
            chosen,
            FIGURES,
            f"{method}-{shots}",
            data={"target": target, "shots": shots},
        )
        for target in (TARGETS[:1] if chosen.reduced else TARGETS)
        for shots in SHOTS
        for method in METHODS
    ]
