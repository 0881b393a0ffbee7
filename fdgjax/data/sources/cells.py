"""The cells of a table's column in one file: numbers, or texts."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError

TEXT_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None")
"""What stands for a missing value in any text file."""
MANY = 100
"""So many texts pyarrow reads faster, all at once, than Python does one by one."""
FIRST_LINE = b"first_line"
"""The metadata of a pyarrow table with the line of its first row: 1 for a file without a header."""


class Coded(NamedTuple):
    """Values as texts: the different ones, and for each row the place of its own among them, -1 where it is missing."""

    texts: Sequence[str]
    places: np.ndarray


class Cells(NamedTuple):
    """The values of a column in one file.

    numbers: float64 `[rows]`, NaN where missing; None if some value is no number.
    words: the values as texts if some is no number, in the order of the rows; else None.
    has_numbers: whether some value is a number.
    first_line: the line of the first row, where each row is one.
    """

    numbers: np.ndarray | None
    words: Coded | None
    has_numbers: bool
    first_line: int = 2

    @property
    def coded(self) -> Coded:
        """The values as texts; numbers in their order."""
        if self.numbers is None:
            assert self.words is not None
            return self.words
        values, places = np.unique(self.numbers, return_inverse=True)
        texts = [in_words(value) for value in values[~np.isnan(values)].tolist()]
        return Coded(texts, np.where(np.isnan(self.numbers), -1, places))

    @property
    def missing(self) -> np.ndarray:
        """Whether each value is missing, `[rows]`."""
        return np.isnan(self.numbers) if self.numbers is not None else self.coded.places < 0

    @property
    def empty(self) -> bool:
        """Whether all values are missing."""
        return bool(self.missing.all())

    def first_missing(self) -> int | None:
        """The line of the first missing value; None if there is none."""
        missing = self.missing
        return self.first_line + int(np.argmax(missing)) if missing.any() else None

    def line_of(self, text: str) -> int:
        """The first line with this text."""
        texts, places = self.coded
        return self.first_line + int(np.argmax(places == texts.index(text)))

    def first_text(self) -> tuple[int, str]:
        """The first value that is no number, and its line."""
        texts, places = self.coded
        worded = np.array([*(as_number(text) is None for text in texts), False])
        row = int(np.argmax(worded[places]))
        return self.first_line + row, texts[places[row]]


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
        cells = of_column(table.column(name), f"column '{name}' of {path}", *missing_in(name, missing))
        found[name] = cells._replace(first_line=first)
    return found


def missing_in(column: str, missing: Sequence[str]) -> tuple[frozenset[str], list[float]]:
    """The words and the numbers that stand for a missing value in a column; see `cells_of`."""
    own = [*missing, *(word.removeprefix(f"{column}=") for word in missing if word.startswith(f"{column}="))]
    return frozenset((*TEXT_MISSING, *own)), [number for number in map(as_number, own) if number is not None]


def first_line(table: Any) -> int:
    """The line of a pyarrow table's first row: 2, below a header, unless its metadata say otherwise."""
    return int((table.schema.metadata or {}).get(FIRST_LINE, 2))


def of_column(column: Any, what: str, words: frozenset[str], codes: Sequence[float]) -> Cells:
    """The cells of a pyarrow column; see `cells_of`."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if texts and len(column) >= MANY:
        values = parsed(column, words)
        return of_coded(coded_texts(column, words), codes) if values is None else of_numbers(values, codes)
    if texts or pa.types.is_boolean(kind):
        each = [None if value is None else str(value).strip() for value in column.to_pylist()]
        return of_texts(each, words, codes)
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return of_numbers(column.cast(pa.float64(), safe=False).to_numpy(), codes)
    if not any(of_kind(kind) for of_kind in (pa.types.is_float16, pa.types.is_decimal, pa.types.is_null)):
        raise UserError(f"{what} has values of the type {kind}; expected numbers or texts; convert it, or ignore it")
    values = np.array([math.nan if value is None else float(value) for value in column.to_pylist()], np.float64)
    return of_numbers(values, codes)


def parsed(column: Any, words: frozenset[str]) -> np.ndarray | None:
    """A pyarrow column of texts as numbers, float64 `[rows]`, NaN where a text is one of `words` or missing.

    None if some text may be no number: pyarrow reads fewer forms of numbers than `as_number`, those alike and faster.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(texts, value_set=pa.array(sorted(words), texts.type))
    try:
        found = pc.cast(pc.if_else(missing, pa.scalar(None, texts.type), texts), pa.float64())
    except pa.ArrowInvalid:
        return None
    values: np.ndarray = found.to_numpy()
    return values if np.isfinite(values).sum() + found.null_count == len(values) else None


def coded_texts(column: Any, words: frozenset[str]) -> Coded:
    """The values of a pyarrow column as texts without spaces around them; `words` stand for missing ones."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = [str(value).strip() for value in encoded.dictionary.to_pylist()]
    return merged([None if text in words else text for text in texts], encoded.indices.fill_null(-1).to_numpy())


def merged(texts: Sequence[str | None], places: np.ndarray) -> Coded:
    """`Coded` of texts of which some may be alike or missing, and each row's place among these, -1 where missing."""
    found = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    own = np.array([*(-1 if text is None else found[text] for text in texts), -1])
    return Coded(list(found), own[places])


def of_texts(values: Sequence[str | None], words: frozenset[str], codes: Sequence[float]) -> Cells:
    """Cells written as texts."""
    texts = [None if value is None or value in words else value for value in values]
    return of_coded(merged(texts, np.arange(len(texts))), codes)


def of_coded(coded: Coded, codes: Sequence[float]) -> Cells:
    """Cells written as texts, of which some may be numbers."""
    read = [as_number(text) for text in coded.texts]
    each = of_numbers(np.array([*(math.nan if number is None else number for number in read), math.nan]), codes)
    assert each.numbers is not None
    if None not in read:
        return Cells(each.numbers[coded.places], None, each.has_numbers)
    # A number among words is spelt, or missing, as in another file of numbers alone: their categories are the same.
    texts = [
        text if number is None else None if math.isnan(value) else in_words(value)
        for text, number, value in zip(coded.texts, read, each.numbers.tolist(), strict=False)
    ]
    return Cells(None, merged(texts, coded.places), each.has_numbers)


def of_numbers(values: np.ndarray, codes: Sequence[float]) -> Cells:
    """Cells that are numbers, or the codes of missing ones; those that are infinite in float32 are missing, too."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    values = np.where(finite & ~np.isin(values, codes) if codes else finite, values, np.nan)
    return Cells(values, None, bool(np.isfinite(values).any()))


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
    found = {text for cells in each for text in cells.coded.texts}
    numbers = {text: as_number(text) for text in found}
    in_order = [(0.0 if number is None else number, text) for text, number in numbers.items()]
    return tuple(text for _, text in sorted(in_order)) if None not in numbers.values() else tuple(sorted(found))


def numbers_of(cells: Cells) -> np.ndarray:
    """The cells of a numeric column as float32 `[rows]`, NaN where missing."""
    numbers = np.full(len(cells.missing), np.nan) if cells.numbers is None else cells.numbers
    return numbers.astype(np.float32)


def codes_of(cells: Cells, categories: Sequence[str]) -> np.ndarray:
    """The cells of a categorical column as float32 `[rows]`: the index of each one's category; NaN where it is missing,
    and -1 for another category. A category that was named 3.0, by hand or by an earlier version, is found as 3."""
    exact = {name: float(place) for place, name in enumerate(categories)}
    known = {spelt(name): place for name, place in exact.items()} | exact
    texts, places = cells.coded
    return np.array([*(known.get(text, -1.0) for text in texts), math.nan], np.float32)[places]
