"""Tables in Markdown."""

from collections.abc import Collection, Iterable, Sequence

from fdgjax.utils.errors import printable


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """The lines of a table; columns with the titles in `right` are flush right. A `|` in a cell becomes a `/`."""
    rule = ["--:" if title in right else "---" for title in titles]

    def line(cells: Sequence[str], between: str = " ") -> str:
        joined = f"{between}|{between}".join(printable(cell).replace("|", "/") for cell in cells)
        return f"|{between}{joined}{between}|"

    return [line(titles), line(rule, between=""), *map(line, rows)]
