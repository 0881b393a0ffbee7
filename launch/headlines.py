"""README's table of results: the papers' methods beside FedAvg or their own baseline, from the kept runs."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation.statistics import over_targets
from fdgjax.report.reading import read_runs
from fdgjax.report.tables import compared as values_of
from fdgjax.sweeps.cells import SPECS, Figures, read_published
from fdgjax.utils.markdown import markdown_table
from launch.kept import EVIDENCE, KeptCell, kept_cells
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
        cells, published = kept_cells(line.folder), read_published(SPECS / f"{evidence.spec}.py")
        found = [
            [cell for cell in cells if of_method(cell.name, key, line.cell)] for key in (line.baseline, line.method)
        ]
        seeds = set.intersection(*({seed.seed for seed in cell.seeds} for each in found for cell in each))
        many = f"{len(seeds)} seed" + "s" * (len(seeds) > 1)
        words = [
            in_words(key[1], [ours(each, seeds, line.figures), papers(key[0], each, published, line.figures)])
            for key, each in zip((line.baseline, line.method), found, strict=True)
        ]
        rows.append([f"{line.what}, {many}", line.metrics, *words])
    for folder, what in PRETRAINED.items():
        runs = read_runs([RESULTS / folder])
        by_figure = [values_of(runs, figure) for figure in ID_OOD]
        spreads = {name: [over_targets(values[name]) for values in by_figure] for name in ("fedavg", "hfedf")}
        shown = {name: " / ".join(f"{100 * one.mean:.1f}" for one in each if one) for name, each in spreads.items()}
        rows.append([what, "id / ood", shown["fedavg"], f"hFedF {shown['hfedf']}"])
    head = ["experiment", "metrics", "FedAvg, ours (paper)", "the paper's method, ours (paper)"]
    return "\n".join([*markdown_table(head, rows), ""])


def of_method(name: str, method: tuple[str, str], cell: str) -> bool:
    """Whether a cell is of the method, and its single cell where one is wanted."""
    own, _, rest = name.partition("-")
    return own == method[0] and (not cell or f"-{rest}" == cell)


def ours(cells: Sequence[KeptCell], seeds: Collection[int], figures: Sequence[str]) -> list[float]:
    """Our figures in percent, means over the seeds that both methods have, then over cells."""
    each = [[[s.figures[figure] for s in cell.seeds if s.seed in seeds] for cell in cells] for figure in figures]
    return [100 * float(np.mean([np.mean(values) for values in of_cells])) for of_cells in each]


def papers(method: str, cells: Sequence[KeptCell], published: Figures, figures: Sequence[str]) -> list[float]:
    """The paper's: of the mean over several cells its own where it prints one, else the mean of what it prints."""
    found = []
    for figure in figures:
        mean = published.get((method, figure)) if len(cells) > 1 else None
        found.append(mean.mean if mean else float(np.mean([published[cell.name, figure].mean for cell in cells])))
    return found


def in_words(name: str, both: Sequence[Sequence[float]]) -> str:
    """`hFedF 74.9 / 53.0 (71.5 / 54.6)`."""
    own, theirs = (" / ".join(f"{value:.1f}" for value in values) for values in both)
    return f"{name} {own} ({theirs})".strip()
