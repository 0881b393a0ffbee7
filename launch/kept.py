"""The kept runs at the papers' scale, cell by cell, beside the figures that the papers print.

The figures are those of benchmarks/results, the papers' those of fdgjax/sweeps/specs, the verdicts those of
fdgjax.evaluation.statistics.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation import is_evaluated
from fdgjax.evaluation.statistics import spread
from fdgjax.report.folders import Seed, read_run_folder, run_folders
from fdgjax.sweeps.cells import SPECS, read_published
from fdgjax.sweeps.comparison import ComparisonRow, Measured, as_measured, as_row
from launch.evidence import DIGITS
from launch.rows import RESULTS

MOST_IMAGES = 20_000
"""No test set of a kept run is larger; see `images_of`."""


class Evidence(NamedTuple):
    """A folder of kept runs at a paper's scale: the spec whose cells its runs are by name, how they were run, and
    whether the cells are pairs of a server's and a test domain, which have a table of their own."""

    folder: str
    spec: str
    how: str
    pairs: bool = False


EVIDENCE = (
    Evidence("hfedf_pacs_augmented", "hfedf_pacs", "DomainBed's augmentation, 32 pixels of 64"),
    Evidence("hfedf_pacs", "hfedf_pacs", "no augmentation"),
    Evidence(
        "fdse_office_caltech10", "fdse_office", "200 rounds of 500, rate 0.05, decay 0.998, the round by validation"
    ),
    Evidence(
        "fdse_office_caltech10_official",
        "fdse_office",
        "200 rounds of 500, rate 0.1, decay 0.9998, 256 pixels, the round by all validation images",
    ),
    Evidence("uap_rotated_mnist", "uap_rotated_mnist", "DIRT's network at a quarter of its width", pairs=True),
)


class KeptCell(NamedTuple):
    """The finished seeds of a cell, and the commits they were made with."""

    name: str
    seeds: list[Seed]
    commits: list[str]


def kept_cells(folder: str) -> list[KeptCell]:
    """The cells of a folder that have a finished seed; `NAME-seed_1` is the seed of another run of the cell `NAME`."""
    found: dict[str, KeptCell] = {}
    for path in run_folders(RESULTS / folder):
        run, name = read_run_folder(path), re.sub(r"-seed_?\d+$", "", path.relative_to(RESULTS / folder).parts[0])
        cell = found.setdefault(name, KeptCell(name, [], []))
        cell.seeds.extend(seed for seed in run.seeds if seed.summary)
        cell.commits.extend([run.commit] if run.commit not in cell.commits else [])
    return [found[name] for name in sorted(found) if found[name].seeds]


def measured(cell: KeptCell, figure: str) -> Measured | None:
    """A figure in percent, with the standard error of its test images."""
    own = spread([seed.figures.get(figure) for seed in cell.seeds])
    return None if own is None else as_measured(own, images_of(cell.seeds[0], figure))


def images_of(seed: Seed, figure: str) -> float | None:
    """The number of images behind a figure (`test_images` of a summary).

    A summary of before that entry lacks it. There it is found from the accuracies of all evaluations, which are whole
    numbers over it: for a mean over clients from each client's.
    """
    if "test_images" in seed.summary:
        return float(seed.summary["test_images"][figure])
    records = [record for record in seed.records if is_evaluated(record)]
    if figure in ("id_accuracy", "avg_accuracy"):
        each = [
            common_denominator([record["client_accuracy"][client] for record in records])
            for client in records[0]["client_accuracy"]
        ]
        return None if None in each else len(each) ** 2 / sum(1 / size for size in each if size)
    # The mean over the clients' models is one over that many times the images.
    values, models = [record[figure] for record in records], seed.summary["clients"]
    found = common_denominator(values)
    return found / models if found and found % models == 0 else found


def common_denominator(fractions: Sequence[float]) -> int | None:
    """The least number over which all are whole numbers, up to the rounding of what is kept."""
    given = np.asarray(fractions)
    # Half a unit of the last digit, and a little for binary fractions.
    rounding = 0.51 * 10.0 ** (np.floor(np.log10(np.maximum(given, 1e-9))) + 1 - DIGITS)
    for number in range(1, MOST_IMAGES):
        if np.all(np.abs(np.round(given * number) / number - given) <= rounding):
            return number
    return None


def compared_in(evidence: Evidence) -> Iterator[tuple[KeptCell, ComparisonRow]]:
    """Each figure that a paper prints of a folder's kept cells."""
    published = read_published(SPECS / f"{evidence.spec}.py")
    for cell in kept_cells(evidence.folder):
        for (name, figure), paper in published.items():
            ours = measured(cell, figure) if name == cell.name else None
            if ours:
                yield cell, as_row(name, figure, ours, paper, "", "")
