"""Whether choosing a method by domains left out of the training domains serves a further domain: twelve methods, every
domain unseen, and every pair of a true target, which is excluded, and a domain left out of the others.

    fdgjax sweep choosing --out runs/choosing/rotated_digits --together 64
    fdgjax sweep choosing --scale office_caltech10 --out runs/choosing/office_caltech10 --data_dir DATA --together 64
    fdgjax sweep choosing --scale pacs --out runs/choosing/pacs --data_dir DATA --together 64

From no paper; each scale is a data set: by default rotated digits, 20 rounds; photographs from ImageNet's features, of
which the last layer alone is trained, 10 rounds of one epoch. Three seeds. Names: METHOD-TARGET, and
METHOD-LEFT_OUT-TARGET with TARGET excluded. `launch/choosing.py` makes the tables of docs/choosing.md from it.
"""

from collections.abc import Sequence

from fdgjax.data.sources.rotated import DOMAINS
from fdgjax.sweeps.cells import Cell, Scale, at_scale
from fdgjax.utils.registry import lookup

FIGURES = ("id_accuracy", "ood_accuracy")
LEAN = {"seeds": 3, "writers": "", "eval_every": 1000, "checkpoint_every": 1000}
FEATURES = {**LEAN, "rounds": 10, "model": {"frozen": -1}}
SCALES = {
    "paper": Scale("rotated_digits", {**LEAN, "rounds": 20}),
    "office_caltech10": Scale("pretrained_office_caltech10", FEATURES),
    "pacs": Scale("pretrained_pacs", FEATURES),
}
TARGETS = {
    "paper": DOMAINS,
    "office_caltech10": ("amazon", "caltech", "dslr", "webcam"),
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
}
METHODS = (
    *("fedavg", "fedprox", "scaffold", "feddyn", "fedgma", "feddg_ga", "fedomg", "fediir", "fedsr"),
    *("ditto", "local", "hfedf"),
)


def cells(scale: str) -> Sequence[Cell]:
    """All runs of one method, then of the next: first those with the other domains excluded in turn, then all."""
    chosen, domains = lookup("scale", scale, SCALES), TARGETS.get(scale, ())
    return [
        at_scale(
            "-".join(filter(None, (method, left_out, excluded))),
            method,
            chosen,
            FIGURES,
            data={"target": left_out, "excluded": excluded},
        )
        for method in METHODS
        for excluded in (*domains, "")
        for left_out in domains
        if left_out != excluded
    ]
