"""What another split of the data does to a figure, and what another training: keeps the figures of runs of the same
seeds on several splits, and makes the table of docs/results.md from them, which `python -m launch.results` writes.

    python -m launch.splits runs/fdse-split*     # into benchmarks/results/fdse_splits/splits.csv

With `y_ps` the figure of P splits by S seeds, an analysis of variance of both has the mean squares

    M_split = S var_p(mean_s y_ps),   M_seed = P var_s(mean_p y_ps),   R of what is left, with (P - 1) (S - 1) degrees,

and the variances `(M_split - R) / S` of a split, `(M_seed - R) / P` of what a seed does on all splits, and R of the
rest, which is a seed's on one split alone. A negative estimate is 0.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc

from fdgjax.evaluation import is_evaluated
from fdgjax.evaluation.statistics import EQUAL
from fdgjax.report.folders import Folder, Seed
from fdgjax.report.reading import read_runs
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError
from fdgjax.utils.markdown import markdown_table
from launch.rows import RESULTS, read_rows, write_rows

FILE = RESULTS / "fdse_splits" / "splits.csv"
FIGURES = {"avg": "AVG", "all": "ALL"}
LAST = 10


class SplitRow(NamedTuple):
    """One seed of a run; accuracies in [0, 1], of the reported round and in the mean over the last ten rounds."""

    method: str
    split: int
    seed: int
    avg: float
    all: float
    avg_last: float
    all_last: float


class Shares(NamedTuple):
    """Of a table of splits by seeds: its mean, the deviations of the parts of its variance, and the probability of as
    large an M_split / R where splits do nothing."""

    mean: float
    split: float
    seed: float
    rest: float
    chance: float


@command
def main(argv: Sequence[str]) -> int:
    """Keeps the finished runs' figures instead of those that were kept.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.splits", description=str(__doc__).partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", help="runs with a `data.split_seed` each")
    args = parser.parse_args(argv[1:])
    folders = [(run.method, folder) for run in read_runs(args.folders) for folder in run.folders]
    rows = [row_of(method, folder, seed) for method, folder in folders for seed in folder.seeds if seed.summary]
    write_rows(FILE, SplitRow._fields, sorted(rows))
    return 0


def row_of(method: str, folder: Folder, seed: Seed) -> SplitRow:
    """What is kept of a seed. Raises a `UserError` where it has no AVG and ALL, or a split of its own."""
    split, keys = folder.config["data"].get("split_seed", -1), [f"{name}_accuracy" for name in FIGURES]
    if split < 0 or any(key not in seed.figures for key in keys):
        raise UserError(f"{folder.path} is no run with AVG and ALL on a given split; expected config.data.split_seed")
    last = [record for record in seed.records if is_evaluated(record)][-LAST:]
    means = [float(np.mean([record[key] for record in last])) for key in keys]
    return SplitRow(method, split, seed.seed, *(seed.figures[key] for key in keys), *means)


def splits(_: str) -> str:
    """For each method and for the difference of the two: mean and deviations of split, seed and rest, in points."""
    rows = read_rows(FILE, SplitRow)
    lines, numbers = [], ["mean", "split", "seed, all splits", "seed, one split", "all three", "splits alike by chance"]
    for name, title in FIGURES.items():
        for when, key in ((" of the chosen round", name), (f" of the last {LAST} rounds", f"{name}_last")):
            tables = by_method(rows, key)
            if len(tables) == 2:
                first, second = tables
                tables[f"{first} minus {second}"] = tables[first] - tables[second]
            for method, table in tables.items():
                found = shares(table)
                total = math.hypot(found.split, found.seed, found.rest)
                points = [found.mean, found.split, found.seed, found.rest, total]
                chance = "< 0.001" if found.chance < 0.001 else f"{found.chance:.3f}"
                lines.append([method, title + when, *(f"{100 * x:.1f}" for x in points), chance])
    return "\n".join([*markdown_table(["method", "figure", *numbers], lines, right=numbers), ""])


def by_method(rows: Sequence[SplitRow], figure: str) -> dict[str, np.ndarray]:
    """A figure of each method, `[splits, seeds]`."""
    found = {(row.method, row.split, row.seed): float(getattr(row, figure)) for row in rows}
    methods = sorted({row.method for row in rows})
    parts, seeds = sorted({row.split for row in rows}), sorted({row.seed for row in rows})
    return {name: np.array([[found[name, part, seed] for seed in seeds] for part in parts]) for name in methods}


def shares(values: np.ndarray) -> Shares:
    """The analysis of variance of `[splits, seeds]`, at least two of each; the module's equations."""
    parts, seeds = values.shape
    by_part, by_seed = values.mean(axis=1), values.mean(axis=0)
    rest = values - by_part[:, None] - by_seed[None] + values.mean()
    freedom = (parts - 1) * (seeds - 1)
    left = float(np.sum(rest**2)) / freedom
    of_part, of_seed = seeds * float(by_part.var(ddof=1)), parts * float(by_seed.var(ddof=1))
    own, other = (math.sqrt(max(each, 0.0)) for each in ((of_part - left) / seeds, (of_seed - left) / parts))
    ratio = of_part / max(left, EQUAL**2)
    return Shares(float(values.mean()), own, other, math.sqrt(left), float(fdtrc(parts - 1, freedom, ratio)))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
