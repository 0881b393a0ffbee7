"""Our figures beside the published ones: `table.md` and `table.csv` in a sweep's folder."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.sweeps.cells import Cell, Figures, Published
from fdgjax.sweeps.status import failure_of, hold, summary_of
from fdgjax.utils.files import write_text


class ComparisonRow(NamedTuple):
    """A cell's or a group's figure. Figures and deviations in percent, None if missing."""

    name: str
    figure: str
    ours: float | None
    deviation: float | None
    paper: float | None
    paper_deviation: float | None
    difference: float | None
    verdict: str
    table: str
    note: str


def write_tables(cells: Sequence[Cell], out: Path, published: Figures) -> None:
    """Writes both tables, with all cells that any process has finished so far."""
    with hold(out, ".tables", wait=True):
        rows = compare(cells, out, published)
        write_text(out / "table.md", markdown(rows, sorted({cell.reduced for cell in cells if cell.reduced})))
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows(
            [ComparisonRow._fields, *([f"{x:.2f}" if isinstance(x, float) else x for x in row] for row in rows)]
        )
        write_text(out / "table.csv", stream.getvalue())


def compare(cells: Sequence[Cell], out: Path, published: Figures) -> list[ComparisonRow]:
    """A row for each figure of each cell, then of each group (the mean over its cells, once all are finished)."""
    summaries = {cell.name: summary_of(out, cell.name) for cell in cells}
    rows: list[ComparisonRow] = []
    for cell in cells:
        failure = failure_of(out, cell.name).partition("\n")[0]
        for name in cell.figures:
            ours = summary_figure(summaries[cell.name], name)
            row = as_row(cell.name, name, ours, published.get((cell.name, name)), cell.reduced, cell.note)
            rows.append(row._replace(verdict="failed", note=failure) if failure else row)
    for group in dict.fromkeys(cell.group for cell in cells if cell.group):
        members = [cell for cell in cells if cell.group == group]
        for name in members[0].figures:
            ours = mean_of([summaries[cell.name] for cell in members], name)
            rows.append(as_row(group, name, ours, published.get((group, name)), members[0].reduced, ""))
    return rows


def as_row(
    name: str,
    figure: str,
    ours: tuple[float, float | None] | None,
    published: Published | None,
    reduced: str,
    note: str,
) -> ComparisonRow:
    """One figure with its published value."""
    mean, deviation = ours or (None, None)
    paper, paper_deviation, table = published or (None, None, "")
    both = mean is not None and paper is not None
    difference = mean - paper if mean is not None and paper is not None else None
    relation = verdict(difference, paper_deviation, deviation, reduced) if both else ""
    return ComparisonRow(name, figure, mean, deviation, paper, paper_deviation, difference, relation, table, note)


def verdict(difference: float | None, paper: float | None, ours: float | None, reduced: str) -> str:
    """How our figure relates to the paper's: `within` the paper's deviation (or ours, if it has none), `better` or
    `worse`.

    If neither has a deviation, any difference counts. A run of less than the paper's protocol is always `reduced`.
    """
    if reduced or difference is None:
        return "reduced"
    tolerance = paper if paper is not None else ours or 0.0
    if abs(difference) <= tolerance:
        return "within"
    return "better" if difference > 0 else "worse"


def summary_figure(summary: Mapping[str, Any], name: str) -> tuple[float, float | None] | None:
    """A figure of a summary in percent, with its deviation over the seeds if there are several."""
    mean = nested(summary, name)
    deviation = nested(summary.get("std", {}), name)
    return None if mean is None else (100 * mean, None if deviation is None else 100 * deviation)


def mean_of(summaries: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float | None] | None:
    """A figure's mean over runs in percent, and the deviation of that mean over seeds; None if a run lacks the
    figure."""
    figures = [figure for summary in summaries if (figure := nested(summary, name)) is not None]
    if len(figures) < len(summaries):
        return None
    # Seed by seed, over the runs; empty if a run has only one seed.
    seeds = zip(*(summary.get("per_seed", {}).values() for summary in summaries), strict=False)
    means = [float(np.mean([nested(run, name) or 0.0 for run in runs])) for runs in seeds]
    return 100 * float(np.mean(figures)), 100 * float(np.std(means, ddof=1)) if len(means) > 1 else None


def nested(content: Mapping[str, Any], name: str) -> float | None:
    """The value of `key.key`, None if missing."""
    found: Any = content
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def markdown(rows: Sequence[ComparisonRow], reduced: Sequence[str]) -> str:
    """The rows as a table, in percent, and what was reduced."""
    lines = [
        "| run | figure | ours | paper | difference | verdict | source | note |",
        "|---|---|--:|--:|--:|---|---|---|",
    ]
    for row in rows:
        difference = "" if row.difference is None else f"{row.difference:+.1f}"
        shown = percent(row.ours, row.deviation), percent(row.paper, row.paper_deviation), difference
        cells = (row.name, row.figure, *shown, row.verdict, row.table, row.note)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*lines, *(f"\nReduced: {words}." for words in reduced)]) + "\n"


def percent(mean: float | None, deviation: float | None) -> str:
    """`63.1`, `63.1 ± 1.3`, or nothing."""
    if mean is None:
        return ""
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"
