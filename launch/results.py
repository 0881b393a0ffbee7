"""The tables of README, docs/results.md, docs/choosing.md and kept curves' pages that are computed from the kept runs.

    python -m launch.results            # rewrites them
    python -m launch.results --check    # says whether they are what the kept runs give, and changes nothing

The figures at the papers' scale are those of `launch.kept`.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fdgjax.evaluation.statistics import Values, over_targets, spread
from fdgjax.methods import METHODS
from fdgjax.report.reading import Run, read_runs
from fdgjax.report.tables import compared as values_of
from fdgjax.sweeps.comparison import mean_and_deviation
from fdgjax.utils.command import command
from fdgjax.utils.markdown import markdown_table
from launch.choosing import regrets, regrets_by_target
from launch.curve_tables import curves_of, leads
from launch.every_method import every_method
from launch.headlines import headlines
from launch.hospitals import hospitals_table
from launch.kept import EVIDENCE, KeptCell, kept_cells
from launch.pages import Edit, tables, update_pages
from launch.pairs import pairs_table
from launch.published_cells import published_cells
from launch.rows import RESULTS
from launch.splits import splits

PROGRAM = "launch.results"


@command
def main(argv: Sequence[str]) -> int:
    """Writes the tables, or checks them; returns 0 when done, 2 where a page is not as it should be."""
    update_pages(PROGRAM, str(__doc__).partition("\n")[0], PAGES, argv[1:])
    return 0


AUGMENTED = ("hfedf_pacs", "hfedf_pacs_augmented")
"""The folders whose cells of one name differ in augmentation alone."""
LOSSES = {
    "id_accuracy": "id",
    "ood_accuracy": "ood",
    "id_loss": "held-out loss",
    "ood_loss": "loss on the unseen domain",
}


def augmentation(_: str) -> str:
    """For each cell that was run with augmentation and without: accuracies and losses of both, by target."""
    without, with_ = ({cell.name: cell for cell in kept_cells(folder)} for folder in AUGMENTED)
    rows, numbers = [], ["seeds", *LOSSES.values()]
    for name in (name for name in without if name in with_):
        for word, cell in (("none", without[name]), ("DomainBed's", with_[name])):
            figures = [mean_of(cell, figure) for figure in LOSSES]
            rows.append([name, word, str(len(cell.seeds)), *figures])
    return "\n".join([*markdown_table(["cell", "augmentation", *numbers], rows, right=numbers), ""])


def mean_of(cell: KeptCell, figure: str) -> str:
    """A figure of the reported round over the seeds: an accuracy in percent, a loss as it is."""
    found = spread([seed.figures.get(figure) for seed in cell.seeds])
    if found is None:
        return ""
    return mean_and_deviation(figure, *found.times(100)[:2]) if "accuracy" in figure else f"{found.mean:.2f}"


PACS = {
    "pretrained_pacs": "an ImageNet network, its last block trained, 5 rounds, 3 seeds",
    "pretrained_pacs_batch_statistics": "the same, BatchNorm by the batches' statistics",
    "pretrained_pacs_one_seed_frozen_statistics": "the same by the weights' statistics, 1 seed",
    "pretrained_pacs_one_seed": "the same by the batches' statistics, 1 seed",
    "pacs_small": "scratch, a small network, 32 pixels, 20 rounds, 1 seed",
}
"""Folders of kept runs of many methods by one protocol, and what they start from."""
FIRST_SEED_OF = {
    "pretrained_pacs_one_seed_frozen_statistics": "pretrained_pacs",
    "pretrained_pacs_one_seed": "pretrained_pacs_batch_statistics",
}
"""Folders of one seed, and the folder of the same protocol whose seed 0 belongs to them."""


def methods_on_pacs(_: str) -> str:
    """Each method with labels at the clients: id / ood, mean over the four unseen domains, by folder."""
    rows: dict[str, dict[str, str]] = {}
    for folder in PACS:
        figures = figures_by_folder(folder)
        domains = len(unseen_in(*figures[1].values()))
        for name in figures[0]:
            if all(name in each for each in figures):
                found = [over_targets(each[name]) for each in figures]
                run_on = len(unseen_in(figures[1][name]))
                part = "" if run_on == domains else f" ({run_on} of {domains})"
                means = " / ".join(f"{100 * one.mean:.1f}" for one in found if one)
                rows.setdefault(name, {})[folder] = means + part
    head = [f"[{how}](../benchmarks/results/{folder})" for folder, how in PACS.items()]
    cells = [[f"`{name}`", *(rows[name].get(folder, "") for folder in PACS)] for name in sorted(rows)]
    return "\n".join([*markdown_table(["method", *head], cells, right=head), ""])


def unseen_in(*methods: Values) -> set[str]:
    """The unseen domains of some methods; what follows a comma in a panel's name is the protocol."""
    return {panel.partition(",")[0] for values in methods for panel, _ in values}


def figures_by_folder(folder: str) -> list[Mapping[str, Values]]:
    """id and ood of a folder's methods by unseen domain and seed, and of seed 0 of those that another folder has."""
    runs, others = (labelled_runs(name) if name else [] for name in (folder, FIRST_SEED_OF.get(folder, "")))
    found: list[Mapping[str, Values]] = []
    for figure in ("id_accuracy", "ood_accuracy"):
        first = {
            name: {key: value for key, value in values.items() if key[1] == 0}
            for name, values in values_of(others, figure).items()
        }
        found.append(first | values_of(runs, figure))
    return found


def labelled_runs(folder: str) -> list[Run]:
    """A folder's runs of methods with labels at the clients."""
    return [run for run in read_runs([RESULTS / folder]) if METHODS[run.method].protocol == "leave_one_out"]


def not_measured(page: str) -> str:
    """The methods that no table of the page's part on what was measured names."""
    part = page.partition("\n## What was measured")[2].partition("\n### Not measured")[0]
    named = {name for line in part.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line)}
    left = [name for name in sorted(METHODS) if name not in named]
    with_labels = " ".join(f"`{name}`" for name in left if not METHODS[name].unlabelled)
    without = " ".join(f"`{name}`" for name in left if METHODS[name].unlabelled)
    return f"- Accuracy of {with_labels} on true labels, and of {without} without.\n"


TABLES: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "README.md": {"headlines": headlines},
    "docs/results.md": {
        "published cells": published_cells,
        "augmentation": augmentation,
        "leads": leads,
        "pairs": pairs_table,
        "hospitals": hospitals_table,
    },
    "docs/choosing.md": {
        "methods on PACS": methods_on_pacs,
        "every method": every_method,
        "not measured": not_measured,
        "regret": regrets,
        "regret by target": regrets_by_target,
    },
    "benchmarks/results/fdse_splits/README.md": {"splits and seeds": splits},
    **{
        f"benchmarks/results/{evidence.folder}/README.md": {"curves": partial(curves_of, evidence.folder)}
        for evidence in EVIDENCE
        if not evidence.pairs
    },
}
"""The tables of each page by the title of their marks."""
PAGES: Mapping[str, Sequence[Edit]] = {name: tables(PROGRAM, makers) for name, makers in TABLES.items()}
"""What is written in each page."""


if __name__ == "__main__":
    sys.exit(main(sys.argv))
