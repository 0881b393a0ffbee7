"""Methods with labelled clients on rotated digits, which need no data folder: each of six domains unseen in turn, three
seeds.

    fdgjax sweep rotated_digits --out runs/rotated-digits
    fdgjax sweep rotated_digits --out runs/rotated-digits --only fedavg fedomg --scale short

From no paper: the configs' defaults (`rotated_digits`), 200 rounds; `short` has 30. Names: METHOD-TARGET; `fedavg_norm`
is FedAvg on the same network with BatchNorm, to compare with gPerXAN, which adds norms.
"""

from collections.abc import Sequence

from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

FIGURES = ("id_accuracy", "ood_accuracy")
SCALES = {
    "paper": Scale("rotated_digits", {"seeds": 3}),
    "short": Scale("rotated_digits", {"seeds": 3, "rounds": 30}, "30 rounds of 200"),
}
ROWS = {
    **{method: (method, {}) for method in ("fedavg", "fedomg", "fediir", "gperxan", "fedccrl")},
    "fedavg_norm": ("fedavg", {"model": {"unit": "norm"}}),
}
"""Rows by name: a method, and the changes to its config."""


def cells(scale: str) -> Sequence[Cell]:
    """All targets of one row, then of the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        at_scale(f"{row}-{target}", method, chosen, FIGURES, row, data={"target": target}, **changes)
        for row, (method, changes) in ROWS.items()
        for target in DOMAINS
    ]
