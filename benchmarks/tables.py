"""From measurements to medians, ratios within a repeat, and a table."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.jobs import Result
from fdgjax.utils.errors import UserError

Series = dict[int, float]
"""A figure by repeat."""


def series(measurements: Sequence[Result], contender: str, figure: str) -> Series:
    """A contender's figure in each repeat that has it."""
    mine = (m for m in measurements if m["contender"] == contender and m.get(figure) is not None)
    return {m["repeat"]: float(m[figure]) for m in mine}


def median(values: Series) -> float | None:
    """The median over repeats; None without any."""
    return statistics.median(values.values()) if values else None


def paired_ratio(above: Series, below: Series) -> float | None:
    """The median of the ratios of figures measured in the same repeat, in which the machine was equally busy."""
    return median({repeat: above[repeat] / below[repeat] for repeat in above if repeat in below})


def spelled(value: float | None, form: Callable[[float], str]) -> str:
    """A table's cell; a dash for what was not measured."""
    return "-" if value is None else form(value)


def mebibytes(value: float) -> str:
    """Bytes as MiB."""
    return f"{value / 2**20:,.0f}"


COSTS = ("peak MiB", "XLA MiB", "compile s")
"""Headings of the columns of `costs`."""


def costs(measurements: Sequence[Result], contender: str) -> list[str]:
    """The cells that every table ends with: memory of the process and of the compiled round, compile time."""
    return [
        spelled(median(series(measurements, contender, "peak_bytes")), mebibytes),
        spelled(median(series(measurements, contender, "program_bytes")), mebibytes),
        spelled(median(series(measurements, contender, "compile_seconds")), "{:.1f}".format),
    ]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def complaints(measurements: Sequence[Result]) -> list[str]:
    """One line for each measurement without figures."""
    words = ("failed", "skipped")
    return [f"{m['contender']}: {word}: {m[word]}" for m in measurements for word in words if word in m]


def check_free(path: Path) -> None:
    """Refuses to overwrite a record.

    Raises:
      UserError: the file exists.
    """
    if path.exists():
        raise UserError(f"--json got {path}, which exists; expected a new file; name another one or move it away")
