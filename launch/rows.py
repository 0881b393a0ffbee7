"""Where the kept runs lie, and figures that are kept as CSV, one row for each seed of a run."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from fdgjax.evaluation.statistics import Values
from fdgjax.utils.files import csv_text, write_text

Row = TypeVar("Row", bound=tuple[Any, ...])
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"


def write_rows(file: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes rows below the names of their columns, numbers with five significant digits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, csv_text([names, *([f"{x:.5g}" if isinstance(x, float) else x for x in row] for row in rows)]))


def read_rows(file: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file, each field of the type that `kind` gives it; [] if there is no file."""
    lines = csv.DictReader(file.read_text().splitlines()) if file.exists() else []
    types = get_type_hints(kind)
    return [kind(**{name: types[name](value) for name, value in line.items()}) for line in lines]


def values_by_method(file: Path, figure: str) -> Mapping[str, Values]:
    """A figure of each method by target and seed."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for line in csv.DictReader(file.read_text().splitlines()):
        found.setdefault(line["method"], {})[line["target"], int(line["seed"])] = float(line[figure])
    return found
