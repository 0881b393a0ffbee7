"""Cells that pyarrow reads at once are those that are read one by one."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fdgjax.data.sources.cells import MANY, TEXT_MISSING, Cells, as_number, in_words, of_column, of_texts

WORDS = frozenset((*TEXT_MISSING, "?", "-9"))
CODES, INFINITE = (-9.0,), 3.4028235677973366e38
"""Codes of missing values, and the smallest number that float32 rounds to infinity."""
NUMBERS = st.one_of(
    st.integers(-999, 999).map(str),
    st.floats(width=64).map(repr),
    st.floats(-1e3, 1e3).map("{:.2f}".format),
    st.sampled_from(["1.", ".5", "+3", "-9.0", "-0", "1e400", "1e-400", "1_000", "0x10", "\uff11\uff12"]),
    st.sampled_from(["inf", "-Infinity", "1e39", "3.4028235677973366e38", "-3.4028235677973362e38"]),
)
TEXTS = st.one_of(
    NUMBERS, st.sampled_from([*TEXT_MISSING, "?", "-9", "yes", "1,5", "nan(1)", "1d5", "\x1c3", "\xa04 "])
)
LAW = settings(derandomize=True, deadline=None, max_examples=100)


def one_by_one(values: Sequence[str | None]) -> tuple[list[str | None], bool, bool]:
    """Each value as a text, None where it is missing; whether all are numbers, and whether any is."""
    texts, numbers = list[str | None](), list[bool]()
    for value in values:
        text = None if value is None or value.strip() in WORDS else value.strip()
        number = None if text is None else as_number(text)
        if number is not None and (number in CODES or abs(number) >= INFINITE):
            text = None
        texts.append(text if number is None or text is None else in_words(number))
        numbers += [number is not None] if text is not None or number is not None else []
    return texts, all(numbers), any(text is not None and as_number(text) is not None for text in texts)


def by_row(cells: Cells) -> list[str | None]:
    texts, places = cells.coded
    return [None if place < 0 else texts[place] for place in places]


@LAW
@given(
    few=st.lists(st.one_of(NUMBERS, st.none()), max_size=6) | st.lists(st.one_of(TEXTS, st.none()), max_size=6),
    times=st.sampled_from([1, MANY]),
)
@example(["1", "+1", "1.0"], MANY)
@example(["-9.0", "2", "?"], MANY)
@example([" 7 ", "\x1c3"], MANY)
@example([], 1)
def test_texts_are_read_as_one_by_one(few: list[str | None], times: int) -> None:
    values = few * times
    texts, numbers, some = one_by_one(values)
    chunks = [pa.array(values[:2], pa.string()), pa.array(values[2:], pa.string())]
    found = [of_column(pa.chunked_array(chunks), "it", WORDS, CODES)]
    found.append(of_column(pa.chunked_array(chunks).dictionary_encode(), "it", WORDS, CODES))
    found.append(of_texts([None if value is None else value.strip() for value in values], WORDS, CODES))
    for cells in found:
        assert by_row(cells) == texts
        assert (cells.numbers is not None) == numbers
        assert cells.has_numbers == some
        assert cells.missing.tolist() == [text is None for text in texts]
        assert cells.first_missing() == next((2 + row for row, text in enumerate(texts) if text is None), None)
        for text in filter(None, texts[: len(few)]):
            assert cells.line_of(text) == 2 + texts.index(text)
        if cells.numbers is not None:
            expected = [math.nan if text is None else float(text) for text in texts]
            np.testing.assert_array_equal(cells.numbers, np.array(expected, np.float64))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, None, False]),
        pa.array([2**60 + 1, None, -3]),
        pa.array([0.1, None, math.inf], pa.float32()),
        pa.array([1.5, None, 7], pa.float16()),
        pa.array([1, 2, None], pa.uint64()),
        pa.array(["1.10", None, "-9"]).cast(pa.decimal128(5, 2)),
        pa.nulls(3),
    ],
    ids=lambda values: str(values.type),
)
def test_other_types_are_read_as_one_by_one(values: Any) -> None:
    given = values.to_pylist()
    if pa.types.is_boolean(values.type):
        texts: list[str | None] = [None if value is None else str(value) for value in given]
    else:
        kept = [math.nan if value is None else float(value) for value in given]
        texts = [None if math.isnan(value) or value == -9 or math.isinf(value) else in_words(value) for value in kept]
    assert by_row(of_column(pa.chunked_array([values]), "it", WORDS, CODES)) == texts
