"""A table as text: Markdown, CSV, LaTeX, and cells for the page."""

from collections.abc import Callable, Mapping

from fdgjax.evaluation import HEADLINES
from fdgjax.evaluation.figure_kinds import larger_is_better, significant
from fdgjax.evaluation.statistics import Spread
from fdgjax.report.escaping import for_csv, for_latex, for_markdown
from fdgjax.report.spelling import spelled
from fdgjax.report.tables import Cell, Column, Table
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
    """A cell as displayed: `84.5 ± 1.2`; an empty string for None."""
    if value is None or isinstance(value, str):
        return value or ""
    write = lookup("kind of column", column.kind, NUMBERS)
    if isinstance(value, Spread):
        return write(value.mean) if value.std is None else f"{write(value.mean)} ± {write(value.std)}"
    return write(value)


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
    """Plain numbers, in the units of `summary.json`: fractions, bytes, seconds; a deviation has a column of its own."""
    spreads = [any(isinstance(row[i], Spread) for row in table.rows) for i in range(len(table.columns))]

    def plain(value: Cell, has_deviation: bool) -> list[str]:
        mean, std = value[:2] if isinstance(value, Spread) else (value, None)
        cells = ["" if one is None else for_csv(one) if isinstance(one, str) else repr(one) for one in (mean, std)]
        return cells if has_deviation else cells[:1]

    names = [
        [for_csv(column.key), for_csv(f"{column.key}_std")] if has else [for_csv(column.key)]
        for column, has in zip(table.columns, spreads, strict=True)
    ]
    rows = [[cell for value, has in zip(row, spreads, strict=True) for cell in plain(value, has)] for row in table.rows]
    return csv_text([[name for pair in names for name in pair], *rows])


def as_latex(table: Table) -> str:
    """A compact `tabular` with the rules of booktabs, in a `table` with caption and label: methods in their papers'
    spelling, the best of those that are compared (`Table.best`) in bold."""

    def line(cells: list[str]) -> str:
        return " & ".join(cells) + r" \\"

    best = best_cells(table)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{for_latex(f'{table.title}. {table.note}')}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{@{{}}{''.join('r' if is_numeric_column(c) else 'l' for c in table.columns)}@{{}}}}",
        r"\toprule",
        line([for_latex(column.title) for column in table.columns]),
        r"\midrule",
        *(
            line(
                [
                    latex_cell(value, column, (i, j) in best)
                    for j, (value, column) in enumerate(zip(row, table.columns, strict=True))
                ]
            )
            for i, row in enumerate(table.rows)
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_cell(value: Cell, column: Column, best: bool) -> str:
    """A cell: `84.5$_{\\pm 1.2}$`, the mean in bold if it is the best."""
    if isinstance(value, str):
        return for_latex(spelled(value) if column.key == "method" else value)
    mean, _, deviation = shown(value, column).partition(" ± ")
    mean = rf"\textbf{{{for_latex(mean)}}}" if best else for_latex(mean)
    return rf"{mean}$_{{\pm {deviation}}}$" if deviation else mean


def best_cells(table: Table) -> set[tuple[int, int]]:
    """Row and column of the best means, as displayed, of every numeric column among the rows that are compared, if
    there are two or more: the greatest, or the smallest of a figure of which less is better."""
    keys = [column.key for column in table.columns]
    if table.best not in keys:
        return set()
    by, found = keys.index(table.best), set[tuple[int, int]]()
    smaller = {title for key, title in HEADLINES.items() if not larger_is_better(key)}
    for group in dict.fromkeys(row[by] for row in table.rows):
        best = min if group in smaller else max
        for j in (j for j, column in enumerate(table.columns) if is_numeric_column(column)):
            means = {
                i: float(shown(row[j], table.columns[j]).partition(" ")[0].replace(",", ""))
                for i, row in enumerate(table.rows)
                if row[by] == group and row[j] is not None
            }
            found |= {(i, j) for i, mean in means.items() if len(means) > 1 and mean == best(means.values())}
    return found
