"""Rows of a file, for columns that are known already: those of a trained model, or of a federation."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.data.columns import Column
from fdgjax.data.sources.cells import Cells, cells_of, codes_of, numbers_of
from fdgjax.utils.errors import LISTED, UserError, printable

LOGGER = logging.getLogger("fdgjax")


def known_cells(
    table: Any, path: Path, missing: Sequence[str], columns: Sequence[Column], label: str = ""
) -> Mapping[str, Cells]:
    """The cells of the known columns of a table, in whose further columns there may be anything.

    Args:
      table: a pyarrow table. path: its file. missing: see `cells_of`.
      columns: those that are known. label: the column of the labels; '' for rows without.

    Raises:
      UserError: a column that is missing; or like `cells_of`.
    """
    found, known = table.column_names, [column.name for column in columns]
    if label and label not in found:
        raise UserError(f"{path} lacks the column '{label}' with the labels; it has: {', '.join(found)}")
    if lacking := [name for name in known if name not in found]:
        spare = [name for name in found if name not in known]
        raise UserError(
            f"{path} lacks {len(lacking)} of the {len(known)} columns that are expected: "
            f"{', '.join(lacking)}; it has also: {', '.join(spare) or 'none'}; rename them, or add empty ones "
            "for values that are missing"
        )
    return cells_of(table.select(list(dict.fromkeys((*known, *([label] if label else []))))), path, missing)


def stored_rows(cells: Mapping[str, Cells], columns: Sequence[Column], path: Path) -> np.ndarray:
    """The cells of known columns as float32 `[rows, columns]`; logs categories that are not known.

    Raises:
      UserError: text in a numeric column.
    """
    return np.stack([stored_column(cells[column.name], column, path) for column in columns], axis=1)


def stored_column(cells: Cells, column: Column, path: Path) -> np.ndarray:
    """The cells of a column, float32 `[rows]`; logs and raises like `stored_rows`."""
    if not column.categories:
        if cells.numbers is None:
            row, text = cells.first_text()
            raise UserError(f"column '{column.name}' of {path} has '{text}' in line {row}; expected numbers; mend it")
        return numbers_of(cells)
    codes = codes_of(cells, column.categories)
    if unknown := texts_of(cells, codes < 0):
        LOGGER.warning(
            printable(
                f"column '{column.name}' of {path} has {int((codes < 0).sum()):,} values of other categories "
                f"({', '.join(unknown[:5])}); they are as none of its own"
            )
        )
    return codes


def texts_of(cells: Cells, rows: np.ndarray) -> list[str]:
    """The different texts of some rows, bool `[rows]`, none of which is missing, in the order of the alphabet."""
    texts, places = cells.coded
    return sorted(texts[place] for place in np.unique(places[rows]))


def labels_in(cells: Mapping[str, Cells], label: str, class_names: Sequence[str], path: Path) -> np.ndarray:
    """The labels of a file's rows, int32 `[rows]`.

    Args:
      cells: of the file's columns. label: the column of the labels. class_names: in their order. path: the file.

    Raises:
      UserError: a row without label, or a label that is no class.
    """
    if (row := cells[label].first_missing()) is not None:
        raise UserError(f"{path} has no '{label}' in line {row}; expected a label in each row; remove rows without")
    codes = codes_of(cells[label], class_names)
    if unknown := texts_of(cells[label], codes < 0):
        raise UserError(
            f"{path} has the labels {', '.join(unknown[:LISTED])}, which are no classes; expected "
            f"{', '.join(class_names)}"
        )
    return codes.astype(np.int32)
