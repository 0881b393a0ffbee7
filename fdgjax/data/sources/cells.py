"""The cells of a table's column in one file: numbers, or texts."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError

TEXT_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None")
"""What stands for a missing value in any text file."""
FIRST_LINE = b"first_line"
"""The metadata of a pyarrow table with the line of its first row: 1 for a file without a header."""


class Cells(NamedTuple):
    """The values of a column in one file.

    numbers: float64 `[rows]`, NaN where missing; None if some value is no number.
    texts: the values as texts, None where missing.
    has_numbers: whether some value is a number.
    first_line: the line of the first row, where each row is one.
    """

    numbers: np.ndarray | None
    texts: Sequence[str | None]
    has_numbers: bool
    first_line: int = 2

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def empty(self) -> bool:
        """Whether all values are missing."""
        return all(text is None for text in self.texts)

    def first_missing(self) -> int | None:
        """The line of the first missing value; None if there is none."""
        return next((self.first_line + row for row, text in enumerate(self.texts) if text is None), None)

    def line_of(self, text: str) -> int:
        """The first line with this text."""
        return self.first_line + self.texts.index(text)

    def first_text(self) -> tuple[int, str]:
        """The first value that is no number, and its line."""
        return next(
            (self.first_line + row, text)
            for row, text in enumerate(self.texts)
            if text is not None and as_number(text) is None
        )


def cells_of(table: Any, path: Path, missing: Sequence[str]) -> Mapping[str, Cells]:
    """The cells of each column of a pyarrow table.

    Args:
      table: the table. path: its file, for error messages.
      missing: words that stand for a missing value, besides those of `TEXT_MISSING`; one that is a number stands for
        each way to write it, such as -9 for -9.0; `COLUMN=WORD` does so in one column.

    Raises:
      UserError: a column that is neither numbers nor texts, such as dates.
    """
    first = first_line(table)
    found = {}
    for name in table.column_names:
        own = [*missing, *(word.removeprefix(f"{name}=") for word in missing if word.startswith(f"{name}="))]
        codes = [number for number in map(as_number, own) if number is not None]
        words = frozenset((*TEXT_MISSING, *own))
        cells = of_column(table.column(name), f"column '{name}' of {path}", words, codes)
        found[name] = Cells(cells.numbers, cells.texts, cells.has_numbers, first)
    return found


def first_line(table: Any) -> int:
    """The line of a pyarrow table's first row: 2, below a header, unless its metadata say otherwise."""
    return int((table.schema.metadata or {}).get(FIRST_LINE, 2))


def of_column(column: Any, what: str, words: frozenset[str], codes: Sequence[float]) -> Cells:
    """The cells of a pyarrow column; see `cells_of`."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return of_texts([None if value is None else str(value).strip() for value in column.to_pylist()], words, codes)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(of_kind(kind) for of_kind in numbers):
        raise UserError(f"{what} has values of the type {kind}; expected numbers or texts; convert it, or ignore it")
    values = np.array([math.nan if value is None else float(value) for value in column.to_pylist()], np.float64)
    return of_numbers(values, codes)


def of_texts(values: Sequence[str | None], words: frozenset[str], codes: Sequence[float]) -> Cells:
    """Cells written as texts."""
    texts = [None if value is None or value in words else value for value in values]
    parsed = [math.nan if text is None else as_number(text) for text in texts]
    found = of_numbers(np.array([math.nan if number is None else number for number in parsed], np.float64), codes)
    if None not in parsed:
        return found
    # A number among words is spelt, or missing, as in another file of numbers alone: their categories are the same.
    mixed = [text if number is None else own for text, number, own in zip(texts, parsed, found.texts, strict=True)]
    return Cells(None, mixed, found.has_numbers)


def of_numbers(values: np.ndarray, codes: Sequence[float]) -> Cells:
    """Cells that are numbers, or the codes of missing ones; those that are infinite in float32 are missing, too."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    values = np.where(finite & ~np.isin(values, codes), values, np.nan)
    texts = [None if math.isnan(value) else in_words(value) for value in values.tolist()]
    return Cells(values, texts, bool(np.isfinite(values).any()))


def in_words(value: float) -> str:
    """A number as the name of a category: the same for 3 and 3.0."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def spelt(text: str) -> str:
    """The name of a category that a text is; see `in_words`."""
    number = as_number(text)
    return text if number is None else in_words(number)


def spelt_code(word: str) -> str:
    """A word for a missing value, or `COLUMN=WORD`, with the word as the name of a category."""
    column, equals, code = word.rpartition("=")
    return f"{column}{equals}{spelt(code)}"


def as_number(text: str) -> float | None:
    """The finite number that a text is; None for another text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def categories_of(each: Sequence[Cells]) -> tuple[str, ...]:
    """The different values of cells in the order of numbers, if all are, else of the alphabet."""
    found = {text for cells in each for text in cells.texts if text is not None}
    numbers = {text: as_number(text) for text in found}
    in_order = [(0.0 if number is None else number, text) for text, number in numbers.items()]
    return tuple(text for _, text in sorted(in_order)) if None not in numbers.values() else tuple(sorted(found))


def numbers_of(cells: Cells) -> np.ndarray:
    """The cells of a numeric column as float32 `[rows]`, NaN where missing."""
    return np.full(len(cells), np.nan, np.float32) if cells.numbers is None else cells.numbers.astype(np.float32)


def codes_of(cells: Cells, categories: Sequence[str]) -> np.ndarray:
    """The cells of a categorical column as float32 `[rows]`: the index of each one's category; NaN where it is missing,
    and -1 for another category. A category that was named 3.0, by hand or by an earlier version, is found as 3."""
    exact = {name: float(place) for place, name in enumerate(categories)}
    places = {spelt(name): place for name, place in exact.items()} | exact
    return np.array([math.nan if text is None else places.get(text, -1.0) for text in cells.texts], np.float32)
