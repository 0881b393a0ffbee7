"""Every method with labels at the clients on ImageNet's features: keeps the figures of sweeps, and makes the table of
docs/choosing.md from them, which `python -m launch.results` writes.

    python -m launch.every_method runs/every/pacs --name pacs     # into benchmarks/results/every_method/pacs.csv
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scipy.special import stdtrit

from fdgjax.evaluation.statistics import Difference, Values, over_targets, paired
from fdgjax.report.reading import read_runs
from fdgjax.sweeps.comparison import mean_and_deviation
from fdgjax.utils.command import command
from fdgjax.utils.markdown import markdown_table
from launch.rows import RESULTS, read_rows, values_by_method, write_rows

FOLDER = RESULTS / "every_method"
NAMES = {"pacs": "PACS", "office_caltech10": "Office-Caltech10"}
FIGURES = {"id_accuracy": "id", "ood_accuracy": "ood"}
REFERENCE = "fedavg"


class MethodRow(NamedTuple):
    """One seed of a run, with an unseen domain; accuracies in [0, 1]."""

    method: str
    target: str
    seed: str
    id: float
    ood: float


@command
def main(argv: Sequence[str]) -> int:
    """Keeps the finished runs' figures, beside those of earlier sweeps; a run of the same method, unseen domain and
    seed replaces the earlier one.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.every_method", description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the sweep")
    parser.add_argument("--name", required=True, choices=NAMES, help="the data set")
    args = parser.parse_args(argv[1:])
    file = FOLDER / f"{args.name}.csv"
    rows = [
        MethodRow(run.method, str(seed.summary["target"]), str(seed.seed), *(seed.figures[key] for key in FIGURES))
        for run in read_runs([args.folder])
        for seed in run.seeds
        if seed.summary
    ]
    by_cell = {row[:3]: row for row in [*read_rows(file, MethodRow), *rows]}
    write_rows(file, MethodRow._fields, sorted(by_cell.values()))
    return 0


def every_method(_: str) -> str:
    """For each data set: every method's id and ood, and its differences from FedAvg; by ood on Office-Caltech10."""
    files = {name: FOLDER / f"{name}.csv" for name in NAMES}
    kept = {name: {it: values_by_method(file, it) for it in FIGURES.values()} for name, file in files.items()}
    pairs = [(NAMES[name], figure) for name in NAMES for figure in FIGURES.values()]
    head = [cell for name, figure in pairs for cell in (f"{name}, {figure}", "minus FedAvg")]
    first, rows = kept["office_caltech10"]["ood"], []
    for method in sorted(first, key=lambda method: -means(first[method])):
        cells = [cell for name in NAMES for figure in FIGURES.values() for cell in cells_of(kept[name][figure], method)]
        rows.append([f"`{method}`", *cells])
    lines = markdown_table(["method", *head], rows, right=head)
    return "\n".join([*lines, "", *(counted(kept[name], NAMES[name]) for name in NAMES), *corrected(kept), ""])


def means(values: Values) -> float:
    """The mean over targets and seeds."""
    found = over_targets(values)
    return found.mean if found else 0.0


def cells_of(figures: Mapping[str, Values], method: str) -> list[str]:
    """Mean and deviation over the seeds in percent; the difference from FedAvg with its standard error in points."""
    if method not in figures:
        return ["", ""]
    own, difference = over_targets(figures[method]), paired(figures[method], figures[REFERENCE])
    shown = "" if own is None else mean_and_deviation("accuracy", *own.times(100)[:2])
    if method == REFERENCE or difference is None:
        return [shown, ""]
    mark = {"ahead": " ▲", "behind": " ▼"}.get(difference.words, "")
    return [shown, f"{100 * difference.mean:+.1f} ± {100 * difference.error:.1f}{mark}"]


def counted(kept: Mapping[str, Mapping[str, Values]], name: str) -> str:
    """How many of the comparisons with FedAvg are settled, and how many equal methods would be by chance."""
    words = []
    for figure, values in kept.items():
        compared = [paired(values[method], values[REFERENCE]) for method in values if method != REFERENCE]
        said = [one.words for one in compared if one is not None]
        words.append(
            f"{figure}: {len(said)} comparisons, {said.count('ahead')} ahead, {said.count('behind')} behind "
            f"({0.05 * len(said):.1f} in all by chance if all were equal)"
        )
    return f"- {name}, {'; '.join(words)}."


def corrected(kept: Mapping[str, Mapping[str, Mapping[str, Values]]]) -> list[str]:
    """Which differences stay if all comparisons of the table together may err with a probability of 5 % (Bonferroni),
    as far as the intervals' own level holds: where a seed does much the same to all targets and three seeds do not show
    it, so far out it errs up to ten times as often.

    Args:
      kept: by data set and figure, each method's values.
    """
    every = {
        (name, figure): {method: paired(values[method], values[REFERENCE]) for method in values if method != REFERENCE}
        for name, figures in kept.items()
        for figure, values in figures.items()
    }
    number = sum(len(each) for each in every.values())
    lines = [f"- Of all {number} comparisons, each tested at 0.05 / {number} (Bonferroni), these stay:"]
    for (name, figure), each in every.items():
        beyond = {method: it for method, it in each.items() if it and is_beyond(it, number)}
        ahead, behind = (
            " ".join(f"`{method}`" for method in sorted(beyond) if (beyond[method].mean > 0) is wanted) or "none"
            for wanted in (True, False)
        )
        lines.append(f"  - {NAMES[name]}, {figure}: ahead {ahead}; behind {behind}.")
    return lines


def is_beyond(difference: Difference, number: int) -> bool:
    """Whether the difference is not zero at the level 0.05 / number, by Student's t; never without an error."""
    if difference.interval is None:
        return False
    quantile = float(stdtrit(difference.freedom, 1 - 0.05 / (2 * number)))
    return abs(difference.mean) > quantile * difference.error


if __name__ == "__main__":
    sys.exit(main(sys.argv))
