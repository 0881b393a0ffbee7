"""Reference lines for an accuracy: the share of the largest class, Central, and the published figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.report.drawing import INK, REFERENCES, Key, colour
from fdgjax.report.reading import Run

OF_TARGET = ("ood_accuracy", "ood_adapted_accuracy")
"""Figures that a model reaches on the unseen domain by predicting its largest class alone."""

CENTRAL = "central"
"""The method that has all clients' data in one place."""


def lines_of(run: Run, runs: Sequence[Run], figure: str) -> dict[str, float]:
    """The values of `REFERENCES` that are known for a figure of a run, in [0, 1].

    The share of the largest class is that of the unseen domain; Central's figure that of its reported round, mean over
    seeds, of the finished runs among `runs` on the same data.
    """
    same = [other for other in runs if other.panel == run.panel]
    majority = [one.facts["target_majority"] for one in same if "target_majority" in one.facts and figure in OF_TARGET]
    central = [np.mean(one.values(figure)) for one in same if is_central(one) and one.values(figure)]
    published = [run.published[figure]] if figure in run.published else []
    found = zip(REFERENCES, (majority, central, published), strict=True)
    return {name: float(values[0]) for name, values in found if values}


def is_central(run: Run) -> bool:
    """Whether others are compared with this run."""
    return run.method == CENTRAL and not run.unfinished


def draw_lines(axes: Any, each: Sequence[Mapping[str, float]], numbers: Sequence[int]) -> None:
    """The lines of a panel's runs, each once: a published figure in the colour of its run, others in the text's."""
    shown = {
        (name, value, colour(number) if name == "published" else INK)
        for lines, number in zip(each, numbers, strict=True)
        for name, value in lines.items()
    }
    for name, value, ink in sorted(shown):
        axes.axhline(value, color=ink, linewidth=1.0, linestyle=(0, REFERENCES[name]))


def line_keys(runs: Sequence[Run], figures: Sequence[str], drawn: Sequence[Run] | None = None) -> list[Key]:
    """The legend of the lines that `draw_lines` drew: for all runs, or for those in `drawn` alone."""
    shown = runs if drawn is None else drawn
    known = {name for run in shown for figure in figures if run.values(figure) for name in lines_of(run, runs, figure)}
    return [Key(name, number, "reference") for number, name in enumerate(REFERENCES) if name in known]
