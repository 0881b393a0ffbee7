"""Our figures beside the published ones, and a sweep's methods ranked: `table.md` and `table.csv` in its folder."""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.evaluation import short_names
from fdgjax.evaluation.figure_kinds import in_table, larger_is_better, table_scale
from fdgjax.evaluation.selection import ORACLE
from fdgjax.evaluation.statistics import Ranked, Spread, image_error, ranking, spread, tolerance, verdict
from fdgjax.run.records import by_seed
from fdgjax.sweeps.cells import Cell, Figures, Published, as_name
from fdgjax.sweeps.status import failure_line, hold, summary_of
from fdgjax.utils.files import csv_text, write_text
from fdgjax.utils.markdown import markdown_table


class Measured(NamedTuple):
    """Our figure over seeds, and the standard error of its test images, 0 where their number is unknown; in percent."""

    spread: Spread
    error: float = 0.0


class ComparisonRow(NamedTuple):
    """A cell's or a group's figure. Figures, deviations and the tolerance of the verdict in percent, None if missing;
    seeds: ours."""

    name: str
    figure: str
    ours: float | None
    deviation: float | None
    seeds: int | None
    paper: float | None
    paper_deviation: float | None
    difference: float | None
    tolerance: float | None
    verdict: str
    table: str
    note: str


def write_tables(cells: Sequence[Cell], out: Path, published: Figures) -> None:
    """Writes both tables, with all cells that any process has finished so far."""
    with hold(out, ".tables", wait=True):
        summaries = {cell.name: summary_of(out, cell.name) for cell in cells}
        rows = compare(cells, out, published, summaries)
        ranked = ranked_markdown(rankings(cells, summaries))
        write_text(out / "table.md", ranked + markdown(rows, sorted({cell.reduced for cell in cells if cell.reduced})))
        write_text(out / "table.csv", csv_text([ComparisonRow._fields, *map(csv_cells, rows)]))


def compare(
    cells: Sequence[Cell], out: Path, published: Figures, summaries: Mapping[str, Mapping[str, Any]]
) -> list[ComparisonRow]:
    """A row for each figure of each cell, then of each group (the mean over its cells, once all are finished);
    `summaries`: by name, empty where a cell is not finished."""
    rows: list[ComparisonRow] = []
    for cell in cells:
        failure, note = failure_line(out, cell.name), cell.note
        if cell.config.get("selection") == ORACLE:
            note = "; ".join(filter(None, [note, "oracle: the round is the best on the unseen domain, an upper bound"]))
        for name in cell.figures:
            ours = summary_figure(summaries[cell.name], name)
            row = as_row(cell.name, name, ours, published.get((cell.name, name)), cell.reduced, note)
            rows.append(row._replace(verdict="failed", note=failure) if failure else row)
    for group in dict.fromkeys(cell.group for cell in cells if cell.group):
        members = [cell for cell in cells if cell.group == group]
        for name in members[0].figures:
            ours = mean_of([summaries[cell.name] for cell in members], name)
            rows.append(as_row(group, name, ours, published.get((group, name)), members[0].reduced, ""))
    return rows


def as_row(
    name: str, figure: str, ours: Measured | None, published: Published | None, reduced: str, note: str
) -> ComparisonRow:
    """One figure with its published value; a run of less than the paper's protocol is always `reduced`."""
    mean, deviation, seeds = ours.spread if ours else (None, None, None)
    paper, paper_deviation, table, number, same = published or (None, None, "", 0, False)
    row = ComparisonRow(name, figure, mean, deviation, seeds, paper, paper_deviation, None, None, "", table, note)
    if ours is None or paper is None:
        return row
    theirs, difference = Spread(paper, paper_deviation, number), ours.spread.mean - paper
    if reduced:
        return row._replace(difference=difference, verdict="reduced")
    error = 0.0 if same else ours.error
    return row._replace(
        difference=difference,
        tolerance=tolerance(ours.spread, theirs, error) or None,
        verdict=verdict(ours.spread, theirs, error, larger_is_better(figure)),
    )


def summary_figure(summary: Mapping[str, Any], name: str) -> Measured | None:
    """A figure of a summary in percent, or a predicted number's in its unit, with its deviation over the seeds if there
    are several."""
    mean = nested(summary, name)
    if mean is None:
        return None
    deviation, images = nested(summary.get("std", {}), name), nested(summary, f"test_images.{name}")
    seeds = sum(nested(own, name) is not None for own in summary.get("per_seed", {}).values()) or 1
    own = Spread(mean, deviation, seeds)
    return Measured(own, 0.0) if table_scale(name) == 1 else as_measured(own, images)


def as_measured(own: Spread, images: float | None) -> Measured:
    """An accuracy in [0, 1] on so many test images, None where their number is unknown, in percent."""
    return Measured(own.times(100), 100 * image_error(own.mean, images) if images else 0.0)


def mean_of(summaries: Sequence[Mapping[str, Any]], name: str) -> Measured | None:
    """A figure's mean over runs in percent, the deviation of that mean over the seeds, and the error of all test
    images, those of each run taken as others; None if a run lacks the figure."""
    figures = [figure for summary in summaries if (figure := summary_figure(summary, name)) is not None]
    if len(figures) < len(summaries):
        return None
    # Of the seeds for which every run has the figure; none if a run has only one seed.
    each = [{seed: nested(run, name) for seed, run in summary.get("per_seed", {}).items()} for summary in summaries]
    by_seed = [[value for own in each if (value := own.get(seed)) is not None] for seed in each[0]]
    whole = [values for values in by_seed if len(values) == len(each)]
    means = spread([table_scale(name) * float(np.mean(values)) for values in whole])
    mean = float(np.mean([figure.spread.mean for figure in figures]))
    error = math.hypot(*(figure.error for figure in figures)) / len(figures)
    return Measured(Spread(mean, means and means.std, means.n if means else 1), error)


def nested(content: Mapping[str, Any], name: str) -> float | None:
    """The value of `key.key`, None if missing."""
    found: Any = content
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def rankings(cells: Sequence[Cell], summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Ranked]]:
    """The methods of a sweep by each headline figure, in [0, 1]: cells whose names differ in the target alone are one
    method."""
    methods: dict[str, dict[str, dict[tuple[str, int], float]]] = {}
    for cell in cells:
        summary, names = summaries[cell.name], [name for name in cell.figures if name in short_names()]
        if not (summary and names):
            continue
        method = named = cell.group or cell.name.removesuffix(f"-{as_name(cell.config.data.target)}")
        if cell.config.get("selection") == ORACLE:
            named += f" ({ORACLE})"
        # The name of a run without an unseen domain is the method's alone.
        place = as_name(cell.config.data.target) if cell.name == method else cell.name.removeprefix(f"{method}-")
        for name, (seed, own) in itertools.product(names, by_seed(summary).items()):
            if (value := nested(own, name)) is not None:
                methods.setdefault(name, {}).setdefault(named, {})[place, seed] = value
    return {name: ranking(of, larger_is_better(name)) for name, of in methods.items() if len(of) > 1}


def ranked_markdown(found: Mapping[str, Sequence[Ranked]]) -> str:
    """The rankings as one table with a line on how to read it; nothing without any."""
    if not found:
        return ""
    titles = ("figure", "place", "method", "mean", "seeds", "targets", "behind the first")
    rows = [ranked_cells(name, one) for name, ranked in found.items() for one in ranked]
    numbers = ("place", "mean", "seeds", "targets", "behind the first")
    lines = markdown_table((*titles, "interval", "ahead in", "verdict"), rows, right=numbers)
    note = "Differences are paired by target and seed, in points or the figure's unit; the interval is of 95 %."
    if smaller := [short_names()[name] for name in found if not larger_is_better(name)]:
        note += f" Smaller values are better of {', '.join(smaller)}; a negative difference is worse there, too."
    return "\n".join([*lines, "", note, "", ""])


def ranked_cells(figure: str, one: Ranked) -> list[str]:
    """A row of `ranked_markdown`."""
    scale = table_scale(figure)
    shown_mean = mean_and_deviation(figure, *one.spread.times(scale)[:2])
    cells = [short_names()[figure], str(one.place or ""), one.name, shown_mean]
    cells += [str(one.spread.n), str(one.targets)]
    if one.behind is None:
        return [*cells, "", "", "", ""]
    interval = one.behind.interval
    shown = "" if interval is None else " to ".join(in_table(figure, scale * end, "+") for end in interval)
    wins = f"{one.behind.wins} of {one.behind.pairs}"
    return [*cells, in_table(figure, scale * one.behind.mean, "+"), shown, wins, one.behind.words]


def markdown(rows: Sequence[ComparisonRow], reduced: Sequence[str]) -> str:
    """The rows as a table, in percent, without columns that are empty, and what was reduced."""
    titles = ("run", "figure", "ours", "seeds", "paper", "difference", "tolerance", "verdict", "source", "note")
    table = [markdown_cells(row) for row in rows]
    kept = [i for i in range(len(titles)) if i < 3 or any(row[i] for row in table)]
    shown = [[row[i] for i in kept] for row in table]
    lines = markdown_table([titles[i] for i in kept], shown, right=titles[2:7])
    return "\n".join([*lines, *(f"\nReduced: {words}." for words in reduced)]) + "\n"


def csv_cells(row: ComparisonRow) -> list[object]:
    """A row's cells for programs."""
    return [in_table(row.figure, cell, digits=2) if isinstance(cell, float) else cell for cell in row]


def markdown_cells(row: ComparisonRow) -> list[str]:
    """A row's cells."""
    written = partial(mean_and_deviation, row.figure)
    signed = "" if row.difference is None else in_table(row.figure, row.difference, "+")
    shown = [written(row.ours, row.deviation), "" if row.seeds is None else str(row.seeds)]
    shown += [written(row.paper, row.paper_deviation), signed, written(row.tolerance, None)]
    return [row.name, row.figure, *shown, row.verdict, row.table, row.note]


def mean_and_deviation(figure: str, mean: float | None, deviation: float | None) -> str:
    """`63.1`, `63.1 ± 1.3`, or nothing; as `in_table` writes the figure."""
    return " ± ".join(in_table(figure, value) for value in (mean, deviation) if value is not None and mean is not None)
