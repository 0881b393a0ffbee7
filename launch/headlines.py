"""README's table of results: the papers' methods beside FedAvg or their own baseline, from the kept runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation.statistics import over_targets
from fdgjax.report.reading import read_runs
from fdgjax.report.tables import compared as values_of
from fdgjax.sweeps.comparison import ComparisonRow
from fdgjax.utils.markdown import markdown_table
from launch.kept import EVIDENCE, compared_in
from launch.rows import RESULTS

ID_OOD, AVG_ALL = ("id_accuracy", "ood_accuracy"), ("avg_accuracy", "all_accuracy")
PRETRAINED = {
    "pretrained_pacs": (
        "PACS, last block of an ImageNet network trained for 5 rounds, mean of four unseen domains, 3 seeds"
    ),
    "pretrained_pacs_batch_statistics": "the same, its BatchNorm by each batch's statistics instead of the weights'",
}
"""Folders of runs that no paper has, and what was run."""


class Headline(NamedTuple):
    """A line: the folder of its runs, what was run, how its metrics are called and their keys, both methods, as in the
    names of cells and as shown, and, of a single cell of each, what follows the method in its name."""

    folder: str
    what: str
    metrics: str
    figures: tuple[str, ...]
    baseline: tuple[str, str]
    method: tuple[str, str]
    cell: str = ""


HEADLINES = (
    Headline(
        "hfedf_pacs_augmented",
        "PACS, mean of four unseen domains, 200 rounds, augmented",
        "id / ood",
        ID_OOD,
        ("fedavg", ""),
        ("hfedf", "hFedF"),
    ),
    Headline(
        "hfedf_pacs",
        "the same with sketch unseen, without augmentation",
        "id / ood",
        ID_OOD,
        ("fedavg", ""),
        ("hfedf", "hFedF"),
        "-sketch",
    ),
    Headline(
        "fdse_office_caltech10",
        "Office-Caltech10, 200 of 500 rounds, the paper's settings",
        "AVG / ALL",
        AVG_ALL,
        ("fedavg", ""),
        ("fdse", "FDSE"),
    ),
    Headline(
        "fdse_office_caltech10_official",
        "the same by the official code's settings",
        "AVG / ALL",
        AVG_ALL,
        ("fedavg", ""),
        ("fdse", "FDSE"),
    ),
    Headline(
        "uap_rotated_mnist",
        "rotated MNIST, mean of 30 pairs of a labelled server and an unseen domain",
        "ood",
        ("ood_accuracy",),
        ("ssfl", "SSFL"),
        ("uap", "UAP"),
    ),
)


def headlines(_: str) -> str:
    """A line for each of `HEADLINES`, the paper's figures in brackets, and for each of `PRETRAINED`."""
    rows = []
    for line in HEADLINES:
        (evidence,) = (one for one in EVIDENCE if one.folder == line.folder)
        every = [row for _, row in compared_in(evidence)]
        found = {key: [row for row in every if of_method(row, key, line.cell)] for key in (line.baseline, line.method)}
        seeds = sorted({row.seeds for rows_ in found.values() for row in rows_ if row.seeds})
        many = " or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")
        each = " each" if len(seeds) > 1 else ""
        cells = [in_words(key[1], found[key], line.figures) for key in (line.baseline, line.method)]
        rows.append([f"{line.what}, {many}{each}", line.metrics, *cells])
    for folder, what in PRETRAINED.items():
        runs = read_runs([RESULTS / folder])
        by_figure = [values_of(runs, figure) for figure in ID_OOD]
        spreads = {name: [over_targets(values[name]) for values in by_figure] for name in ("fedavg", "hfedf")}
        shown = {name: " / ".join(f"{100 * one.mean:.1f}" for one in each if one) for name, each in spreads.items()}
        rows.append([what, "id / ood", shown["fedavg"], f"hFedF {shown['hfedf']}"])
    head = ["experiment", "metrics", "FedAvg, ours (paper)", "the paper's method, ours (paper)"]
    return "\n".join([*markdown_table(head, rows), ""])


def of_method(row: ComparisonRow, method: tuple[str, str], cell: str) -> bool:
    """Whether a figure is of the method, and of its single cell where one is wanted."""
    name, _, rest = row.name.partition("-")
    return name == method[0] and (not cell or f"-{rest}" == cell)


def in_words(name: str, rows: Sequence[ComparisonRow], figures: Sequence[str]) -> str:
    """`hFedF 74.9 / 53.0 (71.5 / 54.6)`: means over cells; nothing without any."""
    means = []
    for who in ("ours", "paper"):
        each = [[getattr(row, who) for row in rows if row.figure == figure] for figure in figures]
        means.append(" / ".join(f"{np.mean(some):.1f}" for some in each if some))
    return f"{name} {means[0]} ({means[1]})".strip() if means[0] else ""
