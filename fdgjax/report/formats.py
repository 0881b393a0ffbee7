"""A table as text: Markdown, CSV, LaTeX, and cells for the page."""

from collections.abc import Callable, Iterable, Mapping

from fdgjax.evaluation import short_names
from fdgjax.evaluation.figure_kinds import larger_is_better, significant
from fdgjax.evaluation.number_figures import NUMBER_FIGURES
from fdgjax.evaluation.probability_figures import FIGURES
from fdgjax.evaluation.statistics import Spread
from fdgjax.report.escaping import for_csv, for_latex, for_markdown
from fdgjax.report.spelling import spelled
from fdgjax.report.tables import Cell, Column, Estimate, Table
from fdgjax.utils.files import csv_text
from fdgjax.utils.markdown import markdown_table
from fdgjax.utils.registry import lookup

NUMBERS: Mapping[str, Callable[[float], str]] = {
    "count": lambda value: f"{value:,.0f}",
    "percent": lambda value: f"{100 * value:.1f}",
    "decimals": lambda value: f"{value:.3f}",
    "points": lambda value: f"{100 * value:+.1f}",
    "difference": lambda value: f"{value:+.3f}",
    "number": significant,
    "number_difference": lambda value: significant(value, "+"),
    "rounds": lambda value: f"{value:.0f}",
    "megabytes": lambda value: f"{value / 1e6:,.1f}",
    "seconds": lambda value: f"{value:,.0f}",
}
"""How the numbers of a column are written for readers, by its kind."""


def shown(value: Cell, column: Column) -> str:
    """A cell as displayed, `84.5 ± 1.2` or `0.871 (0.830 to 0.910)`; an empty string for None."""
    if value is None or isinstance(value, str):
        return value or ""
    mean, more = shown_parts(value, column)
    return mean + more


def shown_parts(value: float | Spread | Estimate, column: Column) -> tuple[str, str]:
    """A number as displayed, and what follows it: its deviation, its interval, or nothing."""
    write = lookup("kind of column", column.kind, NUMBERS)
    if isinstance(value, Estimate):
        return write(value.mean), f" ({write(value.low)} to {write(value.high)})"
    if isinstance(value, Spread):
        return write(value.mean), "" if value.std is None else f" ± {write(value.std)}"
    return write(value), ""


def is_numeric_column(column: Column) -> bool:
    """Whether a column is right-aligned."""
    return column.kind != "text"


def as_markdown(table: Table) -> str:
    """The table with its title and note."""
    titles = [column.title for column in table.columns]
    right = [column.title for column in table.columns if is_numeric_column(column)]
    rows = [[shown(*pair) for pair in zip(row, table.columns, strict=True)] for row in table.rows]
    head = [f"## {for_markdown(table.title)}", "", for_markdown(table.note), ""]
    return "\n".join([*head, *markdown_table(titles, rows, right, for_markdown)]) + "\n"


def as_csv(table: Table) -> str:
    """Plain numbers, in the units of `summary.json`: fractions, bytes, seconds; deviations and the ends of intervals
    have columns of their own."""
    cells = [[plain_parts(value) for value in row] for row in table.rows]
    ends = [list(dict.fromkeys(["", *(end for row in cells for end in row[i])])) for i in range(len(table.columns))]
    names = [f"{column.key}{end}" for column, own in zip(table.columns, ends, strict=True) for end in own]
    rows = [[parts.get(end) for parts, own in zip(row, ends, strict=True) for end in own] for row in cells]
    written = [
        ["" if one is None else for_csv(one) if isinstance(one, str) else repr(one) for one in row] for row in rows
    ]
    return csv_text([list(map(for_csv, names)), *written])


def plain_parts(value: Cell) -> dict[str, str | float | None]:
    """The numbers of a cell, or its words, by what their columns' names end in."""
    if isinstance(value, Spread):
        return {"": value.mean, "_std": value.std}
    if isinstance(value, Estimate):
        return {"": value.mean, "_low": value.low, "_high": value.high}
    return {"": value}


def as_latex(table: Table) -> str:
    """A compact `tabular` with the rules of booktabs, in a `table` with caption and label: methods in their papers'
    spelling, the best of those that are compared (`Table.best`) in bold, those that are not told apart from it
    (`Table.near`) underlined, and a rule between the rows of two figures."""
    best = best_cells(table)
    keys = [column.key for column in table.columns]
    near = {(i, keys.index(key)) for i, key in table.near if key in keys} - best
    lines: list[str] = []
    for i, row in enumerate(table.rows):
        if i and "figure" in table.best and row[keys.index("figure")] != table.rows[i - 1][keys.index("figure")]:
            lines.append(r"\midrule")
        marks = ["textbf" if (i, j) in best else "underline" if (i, j) in near else "" for j in range(len(row))]
        lines.append(latex_line(map(latex_cell, row, table.columns, marks)))
    notes = [f"{table.title}.", table.note, *(["Bold: the best."] if best else [])]
    notes += ["Underlined: the paired interval of the difference from the best has 0 in it."] if near else []
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{for_latex(' '.join(notes))}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{@{{}}{''.join('r' if is_numeric_column(c) else 'l' for c in table.columns)}@{{}}}}",
            r"\toprule",
            latex_line(for_latex(column.title) for column in table.columns),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def latex_line(cells: Iterable[str]) -> str:
    """A row of a `tabular`."""
    return " & ".join(cells) + r" \\"


def latex_cell(value: Cell, column: Column, mark: str) -> str:
    """A cell: `84.5$_{\\pm 1.2}$`, the number in a command such as `textbf`, '' for none."""
    if value is None or isinstance(value, str):
        return for_latex(spelled(value) if value and column.key == "method" else value or "")
    mean, more = shown_parts(value, column)
    mean = rf"\{mark}{{{for_latex(mean)}}}" if mark else for_latex(mean)
    return mean + (rf"$_{{\pm {more.removeprefix(' ± ')}}}$" if more.startswith(" ±") else for_latex(more))


def best_cells(table: Table) -> set[tuple[int, int]]:
    """Row and column of the best means, as displayed, among the rows that are compared, if not all of these are equal:
    the greatest, or the smallest of a figure of which less is better."""
    keys = [column.key for column in table.columns]
    by = [keys.index(key) for key in table.best]
    groups: dict[tuple[Cell, ...], list[int]] = {}
    for i, row in enumerate(table.rows if by else []):
        groups.setdefault(tuple(row[j] for j in by), []).append(i)
    smaller, found = smaller_titles(), set[tuple[int, int]]()
    for group, rows in groups.items():
        turned = "figure" in table.best and group[table.best.index("figure")] in smaller
        for j, column in enumerate(table.columns):
            means = {
                i: float(shown_parts(value, column)[0].replace(",", ""))
                for i in rows
                if column.sense and (value := table.rows[i][j]) is not None and not isinstance(value, str)
            }
            best = (min if turned or column.sense < 0 else max)(means.values(), default=0.0)
            found |= {(i, j) for i, mean in means.items() if mean == best and len(set(means.values())) > 1}
    return found


def smaller_titles() -> set[str]:
    """The titles of the figures of which smaller values are better."""
    headlines = {title for key, title in short_names().items() if not larger_is_better(key)}
    of_numbers = {one.title for one in NUMBER_FIGURES.values() if not one.larger}
    return headlines | of_numbers | {one.title for one in FIGURES.values() if not one.larger}
