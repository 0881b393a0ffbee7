"""The column of a table's labels, classes or numbers to be predicted; those of the rows' groups, splits and owners."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.data.given_splits import EXPECTED, unknown_split
from fdgjax.data.groups import NoGroupError
from fdgjax.data.sources.cells import Cells, as_number, categories_of, codes_of, first_line, missing_in
from fdgjax.data.sources.rounding import check_labels_kept
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.words import spelt_apart

LOGGER = logging.getLogger("fdgjax")
WHOLE = re.compile(r"^([+-]?\d+)\.0*$")
"""A whole number that was written as a decimal one."""


def class_labels(
    label: str, files: Mapping[str, Path], labels: Mapping[str, Cells]
) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes and the rows' labels, int32 `[rows]`; raises like `classes_of`."""
    classes = classes_of(label, files, labels)
    return classes, np.concatenate([codes_of(own, classes) for own in labels.values()]).astype(np.int32)


def numeric_labels(
    label: str, files: Mapping[str, Path], labels: Mapping[str, Cells]
) -> tuple[tuple[str, ...], np.ndarray]:
    """The label's name and the rows' labels, float32 `[rows]`.

    Raises:
      UserError: a row without label, a label that is no number, a single number, or numbers that float32 rounds by much
        of their spread.
    """
    check_filled(label, files, labels)
    each = list[np.ndarray]()
    for domain, own in labels.items():
        if own.numbers is None:
            row, text = own.first_text()
            raise UserError(
                f"the label '{label}' of {files[domain]} has '{text}' in line {row}; expected numbers with "
                "config.task=regression"
            )
        each.append(own.numbers)
    exact = np.concatenate(each)
    check_labels_kept(f"the label '{label}'", exact)
    found = exact.astype(np.float32)
    if np.ptp(found) == 0:
        raise UserError(f"the label '{label}' has the only value {found[0]:g}; expected at least two")
    return (label,), found


def group_names(table: Any, group: str, path: Path, missing: Sequence[str]) -> list[str]:
    """The names of the groups of a pyarrow table's rows, from the column `group`, which may be of any type.

    Args:
      table, path: the table and its file. group: the column. missing: see `fdgjax.data.sources.cells.cells_of`.

    Raises:
      NoGroupError: no such column, or a row without a value.
    """
    if group not in table.column_names:
        raise NoGroupError(f"{path} has no column '{group}' with the groups; it has: {', '.join(table.column_names)}")
    names = words_in(table, group)
    if (lacking := first_without(names, group, missing)) is not None:
        raise NoGroupError(
            f"{path} has no '{group}' in line {first_line(table) + lacking}; expected a group in each row; give such "
            "rows one of their own"
        )
    return names


def split_names(table: Any, split: str, path: Path, missing: Sequence[str]) -> list[str]:
    """The names of the splits of a pyarrow table's rows, from the column `split`; raises a `UserError` for a row that
    has none of those of `fdgjax.data.given_splits.FIELD_OF`. missing: see `group_names`."""
    names = words_in(table, split)
    if (wrong := unknown_split(names)) is not None:
        got = "nothing" if is_missing(names[wrong], *missing_in(split, missing)) else f"'{printable(names[wrong])}'"
        raise UserError(f"{path} has {got} as '{split}' in line {first_line(table) + wrong}; expected {EXPECTED}")
    return names


def owner_names(table: Any, owner: str, path: Path, missing: Sequence[str]) -> list[str]:
    """The names of the owners of a pyarrow table's rows, from the column `owner`, which may be of any type: 3.0 of one
    file is 3 of another. Raises a `UserError` for a row without a value; missing: see `group_names`."""
    names = words_in(table, owner)
    if (lacking := first_without(names, owner, missing)) is not None:
        raise UserError(f"{path} has no '{owner}' in line {first_line(table) + lacking}; expected an owner in each row")
    return [WHOLE.sub(r"\1", name) for name in names]


def first_without(words: Sequence[str], column: str, missing: Sequence[str]) -> int | None:
    """The position of the first word of a column that stands for a missing value; None if none does."""
    nothing = missing_in(column, missing)
    return next((row for row, word in enumerate(words) if is_missing(word, *nothing)), None)


def is_missing(word: str, words: frozenset[str], codes: Sequence[float]) -> bool:
    """Whether a word stands for a missing value; words, codes: as `missing_in` has them."""
    return word in words or (bool(codes) and as_number(word) in codes)


def words_in(table: Any, column: str) -> list[str]:
    """The values of a column of any type as words, `[rows]`."""
    return [str(value).strip() for value in table.column(column).to_pylist()]


def check_filled(label: str, files: Mapping[str, Path], labels: Mapping[str, Cells]) -> None:
    """Raises a `UserError` for a row without label."""
    for domain, own in labels.items():
        if (row := own.first_missing()) is not None:
            raise UserError(
                f"{files[domain]} has no '{label}' in line {row}; expected a label in each row; remove rows without"
            )


def classes_of(label: str, files: Mapping[str, Path], labels: Mapping[str, Cells]) -> tuple[str, ...]:
    """The classes, in the order of their numbers, or of the alphabet.

    Raises:
      UserError: a row without label, a label that is a measured number, or a single class.
    """
    check_filled(label, files, labels)
    for domain, own in labels.items():
        if own.numbers is not None and (fractions := own.numbers[own.numbers % 1 != 0]).size:
            raise UserError(
                f"the label '{label}' of {files[domain]} has numbers such as {fractions[0]:g}; expected classes: whole "
                "numbers or words; cut it into ranges, or set config.task=regression"
            )
    classes = categories_of(list(labels.values()))
    if twins := spelt_apart(classes):
        raise UserError(
            f"the label '{label}' has the classes '{twins[0]}' and '{twins[1]}', which differ in capitals or the form "
            "of accents alone; expected one spelling; mend the files"
        )
    if len(classes) < 2:
        raise UserError(f"the label '{label}' has the only class '{classes[0]}'; expected at least two")
    lacking = {domain: set(classes) - set(categories_of([own])) for domain, own in labels.items()}
    for domain, classes_without in lacking.items():
        if classes_without:
            LOGGER.info(printable(f"{domain} has no rows of {', '.join(sorted(classes_without))}"))
    return classes
