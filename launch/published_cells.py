"""The kept cells at a paper's scale beside the paper's, a table for each way in which they were run."""

from collections.abc import Sequence
from functools import partial

from fdgjax.evaluation import HEADLINES
from fdgjax.report.spelling import spelled
from fdgjax.sweeps.comparison import ComparisonRow, mean_and_deviation
from fdgjax.utils.markdown import markdown_table
from launch.kept import EVIDENCE, Evidence, compared_in

CLOSE = 5
"""The tolerance in points up to which a reproduction says much: as large as what the papers' methods differ by."""


def published_cells(_: str) -> str:
    """For each folder of kept runs how many of the paper's figures are reproduced, and its cells, but those of pairs of
    domains, which have a table of their own."""
    return "\n".join(line for evidence in EVIDENCE for line in [*lines_of(evidence), ""])


def lines_of(evidence: Evidence) -> list[str]:
    """The heading and the table of one folder, one row for each cell."""
    by_cell: dict[str, list[ComparisonRow]] = {}
    for cell, row in compared_in(evidence):
        by_cell.setdefault(cell.name, []).append(row)
    every = [row for rows in by_cell.values() for row in rows]
    verdicts = [row.verdict.partition(",")[0] for row in every]
    paper = f"{spelled(evidence.spec.partition('_')[0])}, {every[0].table}"
    close = sum(row.verdict.startswith("reproduced") and (row.tolerance or 0) <= CLOSE for row in every)
    unsaid = len(verdicts) - sum(verdicts.count(word) for word in ("reproduced", "worse", "better"))
    heading = (
        f"**{paper}; [{evidence.how}](../benchmarks/results/{evidence.folder}/README.md)**: "
        f"{verdicts.count('reproduced')} of {len(verdicts)} figures reproduced ({close} of them within a tolerance of "
        f"{CLOSE} points or less), {verdicts.count('worse')} worse, {verdicts.count('better')} better"
        f"{f', {unsaid} with too few seeds to say' if unsaid else ''}."
    )
    return [heading] if evidence.pairs else [heading, "", *table_of(by_cell)]


def table_of(by_cell: dict[str, list[ComparisonRow]]) -> list[str]:
    """The cells' figures side by side, in percent."""
    figures = list(dict.fromkeys(row.figure for rows in by_cell.values() for row in rows))
    right, titles = ["seeds"], ["cell", "seeds"]
    for figure in figures:
        numbers = [f"{HEADLINES[figure]}, ours", "the paper's", "difference (tolerance)"]
        right += numbers
        titles += [*numbers, "verdict"]
    rows = []
    for name, found in by_cell.items():
        of = {row.figure: row for row in found}
        columns = [column for figure in figures for column in (columns_of(of[figure]) if figure in of else [""] * 4)]
        rows.append([name, str(found[0].seeds), *columns])
    return markdown_table(titles, rows, right=right)


def columns_of(row: ComparisonRow) -> Sequence[str]:
    """Our figure, the paper's, their difference and the verdict; the number of seeds stands beside it."""
    written = partial(mean_and_deviation, row.figure)
    difference = f"{round(row.difference or 0, 1) + 0.0:+.1f}"
    if row.tolerance is not None:
        difference += f" ({written(row.tolerance, None)})"
    verdict = row.verdict.partition(",")[0]
    return [written(row.ours, row.deviation), written(row.paper, row.paper_deviation), difference, verdict]
