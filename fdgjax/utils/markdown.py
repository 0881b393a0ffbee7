"""Tables in Markdown."""

from collections.abc import Callable, Collection, Iterable, Sequence

from fdgjax.utils.errors import printable


def without_bars(text: str) -> str:
    """A cell's text, with `/` for `|`, which would end the cell."""
    return printable(text).replace("|", "/")


def markdown_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    cell: Callable[[str], str] = without_bars,
) -> list[str]:
    """The lines of a table; columns with the titles in `right` are flush right. `cell`: what a text is in a cell."""
    rule = ["--:" if title in right else "---" for title in titles]

    def line(cells: Iterable[str], between: str = " ") -> str:
        joined = f"{between}|{between}".join(map(cell, cells))
        return f"|{between}{joined}{between}|"

    return [line(titles), line(rule, between=""), *map(line, rows)]
