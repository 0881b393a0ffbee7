"""Methods whose clients have labels on rotated digits, which need no data: each of six domains unseen in turn, three
seeds.

    fdgjax sweep rotated_digits --out runs/rotated-digits
    fdgjax sweep rotated_digits --out runs/rotated-digits --only fedavg fedomg --scale short

Of no paper: the configs' defaults (`rotated_digits`), 200 rounds; `short` has 30. Names: METHOD-TARGET; `fedavg_norm`
is FedAvg on the same network with BatchNorm, as gPerXAN brings norms along.
"""

from collections.abc import Sequence

from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.sweeps.cells import Cell, Scale, configured
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
"""By the row's name: a method, and what else its config has."""


def cells(scale: str) -> Sequence[Cell]:
    """All targets of one row, then of the next."""
    chosen = lookup("scale", scale, SCALES)
    return [
        Cell(
            f"{row}-{target}",
            configured(method, chosen, data={"target": target}, **changes),
            FIGURES,
            row,
            reduced=chosen.reduced,
        )
        for row, (method, changes) in ROWS.items()
        for target in DOMAINS
    ]
