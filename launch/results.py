"""The tables of docs/results.md and docs/choosing.md that are computed from the kept runs.

    python -m launch.results            # rewrites them
    python -m launch.results --check    # says whether they are what the kept runs give, and changes nothing

The figures are those of benchmarks/results, the papers' those of fdgjax/sweeps/specs, the verdicts those of
fdgjax.evaluation.statistics.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation import HEADLINES, is_evaluated
from fdgjax.evaluation.statistics import over_targets, spread
from fdgjax.methods import METHODS
from fdgjax.report.reading import Seed, read_run_folder, read_runs, run_folders
from fdgjax.report.tables import compared as values_of
from fdgjax.sweeps.cells import SPECS, read_published
from fdgjax.sweeps.comparison import ComparisonRow, Measured, as_measured, as_row, percent
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text
from launch.choosing import regrets, regrets_by_target
from launch.every_method import every_method
from launch.evidence import DIGITS
from launch.hospitals import hospitals_table

ROOT = Path(__file__).resolve().parents[1]
KEPT, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
MOST_IMAGES = 20_000
"""No test set of a kept run is larger; see `images_of`."""


class Evidence(NamedTuple):
    """A folder of kept runs at a paper's scale: the spec whose cells its runs are by name, and how they were run."""

    folder: str
    spec: str
    how: str


EVIDENCE = (
    Evidence("hfedf_pacs", "hfedf_pacs", "no augmentation"),
    Evidence("hfedf_pacs_augmented", "hfedf_pacs", "DomainBed's augmentation, 32 pixels of 64"),
    Evidence("fdse_office_caltech10", "fdse_office", "200 rounds of 500, rate 0.05, decay 0.998"),
    Evidence("fdse_office_caltech10_official", "fdse_office", "200 rounds of 500, rate 0.1, decay 0.9998, 256 pixels"),
)


class KeptCell(NamedTuple):
    """The finished seeds of a cell, and the commits they were made with."""

    name: str
    seeds: list[Seed]
    commits: list[str]


@command
def main(argv: Sequence[str]) -> int:
    """Writes the tables, or checks them.

    Returns:
      The exit status: 0 when done, 2 where the page has no place for a table, or by `--check` another table.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.results", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    args = parser.parse_args(argv[1:])
    for name, tables in PAGES.items():
        page = (DOCS / name).read_text()
        for title, make in tables.items():
            page = with_table(page, title, make)
        if args.check and page != (DOCS / name).read_text():
            raise UserError(f"{DOCS / name} has other tables than the kept runs give; run python -m launch.results")
        if not args.check:
            write_text(DOCS / name, page)
    return 0


def with_table(page: str, title: str, make: Callable[[str], str]) -> str:
    """The page with a table between its marks.

    Args:
      page: the page so far.
      title: of the marks.
      make: the table, of the page.

    Raises:
      UserError: the page lacks the marks.
    """
    begin, end = f"<!-- {title}: by python -m launch.results -->", f"<!-- end of {title} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UserError(f"the page has no '{begin}' before '{end}'; expected both, once")
    return f"{before}{begin}\n\n{make(page)}\n{end}{after}"


def kept_cells(folder: str) -> list[KeptCell]:
    """The cells of a folder that have a finished seed; `NAME-seed_1` is the seed of another run of the cell `NAME`."""
    found: dict[str, KeptCell] = {}
    for path in run_folders(KEPT / folder):
        run, name = read_run_folder(path), re.sub(r"-seed_?\d+$", "", path.relative_to(KEPT / folder).parts[0])
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


def compared() -> Iterator[tuple[Evidence, KeptCell, ComparisonRow]]:
    """Each figure that a paper prints of a kept cell."""
    for evidence in EVIDENCE:
        published = read_published(SPECS / f"{evidence.spec}.py")
        for cell in kept_cells(evidence.folder):
            for (name, figure), paper in published.items():
                ours = measured(cell, figure) if name == cell.name else None
                if ours:
                    yield evidence, cell, as_row(name, figure, ours, paper, "", "")


def published_cells(_: str) -> str:
    """Every kept figure at a paper's scale beside the paper's, and how many are reproduced."""
    lines = [
        "| table | cell | how it was run | figure | ours | seeds | the paper's | difference | tolerance | verdict |",
        "|---|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    verdicts: dict[str, list[str]] = {}
    for evidence, cell, row in compared():
        how = f"[{evidence.how}](../benchmarks/results/{evidence.folder}/README.md)"
        figures = [percent(row.ours, row.deviation), str(row.seeds), percent(row.paper, row.paper_deviation)]
        figures += [f"{row.difference:+.1f}", percent(row.tolerance, None), row.verdict]
        paper = f"{evidence.spec.partition('_')[0]}, {row.table}"
        lines.append(f"| {' | '.join([paper, cell.name, how, HEADLINES[row.figure], *figures])} |")
        verdicts.setdefault(f"{evidence.spec}, {evidence.how}", []).append(row.verdict.partition(",")[0])
    counts = [
        f"- {name}: {words.count('reproduced')} of {len(words)} figures reproduced, {words.count('worse')} worse, "
        f"{words.count('better')} better."
        for name, words in verdicts.items()
    ]
    return "\n".join([*lines, "", *counts, ""])


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
    lines = [
        f"| cell | augmentation | seeds | {' | '.join(LOSSES.values())} |",
        f"|---|---|--:|{'--:|' * len(LOSSES)}",
    ]
    for name in (name for name in without if name in with_):
        for word, cell in (("none", without[name]), ("DomainBed's", with_[name])):
            figures = [mean_of(cell, figure) for figure in LOSSES]
            lines.append(f"| {name} | {word} | {len(cell.seeds)} | {' | '.join(figures)} |")
    return "\n".join([*lines, ""])


def mean_of(cell: KeptCell, figure: str) -> str:
    """A figure of the reported round over the seeds: an accuracy in percent, a loss as it is."""
    found = spread([seed.figures.get(figure) for seed in cell.seeds])
    if found is None:
        return ""
    return percent(*found.in_percent[:2]) if "accuracy" in figure else f"{found.mean:.2f}"


PACS = {
    "pretrained_pacs": "ImageNet's features, 5 rounds, 3 seeds",
    "pretrained_pacs_one_seed": "the same, 1 seed",
    "pacs_small": "nothing, a small network, 32 pixels, 20 rounds, 1 seed",
}
"""Folders of kept runs of many methods by one protocol, and what they start from."""


def methods_on_pacs(_: str) -> str:
    """Each method with labels at the clients: id / ood, mean over the four unseen domains, by folder."""
    rows: dict[str, dict[str, str]] = {}
    for folder in PACS:
        runs = [run for run in read_runs([KEPT / folder]) if METHODS[run.method].protocol == "leave_one_out"]
        domains = len({run.panel for run in runs})
        figures = [values_of(runs, figure) for figure in ("id_accuracy", "ood_accuracy")]
        for name in figures[0]:
            if all(name in each for each in figures):
                found = [over_targets(each[name]) for each in figures]
                run_on = len({panel for panel, _ in figures[1][name]})
                part = "" if run_on == domains else f" ({run_on} of {domains})"
                means = " / ".join(f"{100 * one.mean:.1f}" for one in found if one)
                rows.setdefault(name, {})[folder] = means + part
    head = [f"[{how}](../benchmarks/results/{folder})" for folder, how in PACS.items()]
    lines = [f"| method | {' | '.join(head)} |", f"|---|{'--:|' * len(PACS)}"]
    lines += [f"| `{name}` | {' | '.join(rows[name].get(folder, '') for folder in PACS)} |" for name in sorted(rows)]
    return "\n".join([*lines, ""])


def not_measured(page: str) -> str:
    """The methods that no table of the page's part on what was measured names."""
    part = page.partition("\n## What was measured")[2].partition("\n### Not measured")[0]
    named = {name for line in part.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line)}
    left = [name for name in sorted(METHODS) if name not in named]
    with_labels = " ".join(f"`{name}`" for name in left if not METHODS[name].unlabelled)
    without = " ".join(f"`{name}`" for name in left if METHODS[name].unlabelled)
    return f"- Accuracy of {with_labels} on true labels, and of {without} without.\n"


PAGES: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "results.md": {"published cells": published_cells, "augmentation": augmentation, "hospitals": hospitals_table},
    "choosing.md": {
        "methods on PACS": methods_on_pacs,
        "every method": every_method,
        "not measured": not_measured,
        "regret": regrets,
        "regret by target": regrets_by_target,
    },
}
"""The tables of each page by the title of their marks."""


if __name__ == "__main__":
    sys.exit(main(sys.argv))
