"""The tables of docs/results.md that compare kept runs with papers, written by this command and by nobody's hand.

    python -m launch.results            # rewrites them
    python -m launch.results --check    # says whether they are what the kept runs give, and changes nothing

The figures are those of benchmarks/results, the papers' those of fdgjax/sweeps/specs, the verdicts those of
fdgjax.evaluation.statistics.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation import HEADLINES, is_evaluated
from fdgjax.evaluation.statistics import Spread, image_error, spread
from fdgjax.report.reading import Seed, read_run_folder, run_folders
from fdgjax.sweeps.cells import SPECS, read_published
from fdgjax.sweeps.comparison import ComparisonRow, Measured, as_row, percent
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text
from launch.evidence import DIGITS

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
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
    page = PAGE.read_text()
    written = with_tables(page)
    if args.check and written != page:
        raise UserError(f"{PAGE} has other tables than the kept runs give; run python -m launch.results")
    write_text(PAGE, written)
    return 0


def with_tables(page: str) -> str:
    """The page with each table between its marks.

    Raises:
      UserError: the page lacks a table's marks.
    """
    for name, text in (("published cells", published_cells()), ("augmentation", augmentation())):
        begin, end = f"<!-- {name}: by python -m launch.results -->", f"<!-- end of {name} -->"
        page, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}",
            lambda _, new=f"{begin}\n\n{text}\n{end}": new,
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise UserError(f"{PAGE} has '{begin}' with its end {count} times; expected once")
    return page


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
    if own is None:
        return None
    images = images_of(cell.seeds[0], figure)
    scaled = Spread(100 * own.mean, None if own.std is None else 100 * own.std, own.n)
    return Measured(scaled, 100 * image_error(own.mean, images) if images else 0.0)


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


def published_cells() -> str:
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


def augmentation() -> str:
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
    return percent(100 * found.mean, found.std and 100 * found.std) if "accuracy" in figure else f"{found.mean:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
