"""Tables of kept curves on their folder's page, and what a paper's method gains over the others seed by seed."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fdgjax.evaluation import HEADLINES
from fdgjax.evaluation.statistics import Difference, Values, paired
from fdgjax.report.folders import Seed
from fdgjax.sweeps.cells import SPECS, Figures, read_published
from fdgjax.utils.markdown import markdown_table
from launch.kept import KeptCell, kept_cells

CURVES = {
    "id_accuracy": "id",
    "ood_accuracy": "ood",
    "avg_accuracy": "AVG",
    "all_accuracy": "ALL",
    "id_loss": "held-out loss",
    "ood_loss": "loss on the unseen domain",
    "train_loss": "training loss",
}
"""What has a table, by the key of a round's record: accuracies in percent, losses in nats."""
SHARES = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The columns, as shares of all rounds."""

LEADS = ("id_accuracy", "ood_accuracy")
"""The figures of a lead."""
LEADING, LEADING_IN = "hfedf", ("hfedf_pacs_augmented", "hfedf_pacs")
"""The method whose leads are shown, the folder of its runs, and the spec with the paper's figures."""


def curves_of(folder: str, _: str) -> str:
    """One table for each of `CURVES` that the folder's runs have: a line for each seed of each cell.

    Args:
      folder: in benchmarks/results.
    """
    cells = kept_cells(folder)
    lines: list[str] = []
    for figure, title in CURVES.items():
        rows = [(cell, seed) for cell in by_target(cells) for seed in sorted(cell.seeds) if figure in seed.records[-1]]
        if rows:
            rounds = columns(rows[0][1])
            numbers = ["seed", *map(str, rounds)]
            body = [[cell.name, str(seed.seed), *at_rounds(seed, figure, rounds)] for cell, seed in rows]
            lines += [*markdown_table([title, *numbers], body, right=numbers), ""]
    return "\n".join(lines)


def by_target(cells: Sequence[KeptCell]) -> list[KeptCell]:
    """The cells of one unseen domain after another, the methods in turns."""
    return sorted(cells, key=lambda cell: cell.name.partition("-")[::-1])


def columns(seed: Seed) -> list[int]:
    """The rounds of a table's columns."""
    return [round(share * seed.summary["rounds"]) for share in SHARES]


def at_rounds(seed: Seed, figure: str, rounds: Sequence[int]) -> list[str]:
    """A figure's values in some rounds, empty where a round was not evaluated."""
    found: Mapping[int, float | None] = {record["round"]: record.get(figure) for record in seed.records}
    scale, digits = (100, 1) if "accuracy" in figure else (1, 2)
    return ["" if (value := found.get(at)) is None else f"{scale * value:.{digits}f}" for at in rounds]


def leads(_: str) -> str:
    """How far a paper's method is ahead of each other one of its table, by target and over all targets: ours, paired by
    seed, the paper's, and ours in the last quarter of the rounds."""
    folder, spec = LEADING_IN
    published, cells = read_published(SPECS / f"{spec}.py"), kept_cells(folder)
    reported, late = (
        {figure: values_of(cells, figure, of_seed) for figure in LEADS} for of_seed in (reported_figure, late_figure)
    )
    own, *others = leading_first(reported[LEADS[0]])
    body = []
    for name, theirs in others:
        targets = sorted({target for target, seed in own[1] if (target, seed) in theirs})
        several = [(f"mean of {len(targets)}", targets)] if len(targets) > 1 else []
        for words, some in [*((target, [target]) for target in targets), *several]:
            found = [lead_over(name, some, reported[figure]) for figure in LEADS]
            ahead = ", ".join(str(one.wins if one else 0) for one in found)
            cells_of_row: list[str] = []
            for figure, one in zip(LEADS, found, strict=True):
                gain = published_lead(published, name, some, figure)
                said = "" if gain is None else f"{gain:+.1f}"
                cells_of_row += [lead(one), said, lead(lead_over(name, some, late[figure]))]
            body.append([name, words, f"{found[0].pairs if found[0] else 0}: {ahead}", *cells_of_row])
    figures = [HEADLINES[figure] for figure in LEADS]
    numbers = [title for name in figures for title in (name, "the paper's", f"{name}, last quarter")]
    pairs = f"pairs: ahead by {', '.join(figures)}"
    return "\n".join([*markdown_table([f"{LEADING} minus", "unseen", pairs, *numbers], body, right=numbers), ""])


def lead_over(name: str, targets: Sequence[str], methods: Mapping[str, Values]) -> Difference | None:
    """How far `LEADING` is ahead of a method with some targets, paired by target and seed."""
    return paired(of_targets(methods[LEADING], targets), methods[name])


def leading_first(methods: Mapping[str, Values]) -> list[tuple[str, Values]]:
    """The methods with their figures, `LEADING` before the others."""
    return sorted(methods.items(), key=lambda item: (item[0] != LEADING, item[0]))


def published_lead(published: Figures, name: str, targets: Sequence[str], figure: str) -> float | None:
    """The difference of the paper's means, in the mean of some targets; None where it does not print them all."""
    cells = [[(f"{method}-{target}", figure) for target in targets] for method in (LEADING, name)]
    if not all(cell in published for each in cells for cell in each):
        return None
    ours, theirs = (np.mean([published[cell].mean for cell in each]) for each in cells)
    return float(ours - theirs)


def of_targets(values: Values, targets: Sequence[str]) -> Values:
    """A method's figures with some targets."""
    return {key: value for key, value in values.items() if key[0] in targets}


def reported_figure(seed: Seed, figure: str) -> float:
    """That of the reported round."""
    return seed.figures[figure]


def late_figure(seed: Seed, figure: str) -> float:
    """Mean over the evaluations in the last quarter of the rounds, which depends on no single round."""
    late = [record for record in seed.records if record["round"] > 0.75 * seed.summary["rounds"]]
    return float(np.mean([record[figure] for record in late if record.get(figure) is not None]))


def values_of(
    cells: Sequence[KeptCell], figure: str, of_seed: Callable[[Seed, str], float] = reported_figure
) -> Mapping[str, Values]:
    """A figure of each method by target and seed; a cell's name is `METHOD-TARGET`."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for cell in cells:
        method, _, target = cell.name.partition("-")
        found.setdefault(method, {}).update({(target, seed.seed): of_seed(seed, figure) for seed in cell.seeds})
    return found


def lead(ours: Difference | None) -> str:
    """A difference in percentage points, with its interval where there is one."""
    if ours is None:
        return ""
    interval = "" if ours.interval is None else " ({:+.1f} to {:+.1f})".format(*(100 * end for end in ours.interval))
    return f"{100 * ours.mean:+.1f}{interval}"
