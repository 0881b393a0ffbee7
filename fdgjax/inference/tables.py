"""Tables and files of arrays, read into the format of a model's stored training samples and predicted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.columns import Column
from fdgjax.data.sources.array_files import read_inputs
from fdgjax.data.sources.arrays import checked_numbers
from fdgjax.data.sources.cells import first_line
from fdgjax.data.sources.known_columns import known_cells, stored_rows
from fdgjax.data.sources.listing import list_folder
from fdgjax.inference.classifier import SAMPLES_AT_ONCE
from fdgjax.inference.images import Decoded
from fdgjax.utils.errors import UserError, printable


class SampleFile(NamedTuple):
    """The samples of a file. stored: float32 `[rows, ...]`. first: the number of the first row: its line in a table."""

    path: Path
    stored: np.ndarray
    first: int

    @property
    def names(self) -> list[tuple[str, str]]:
        """Of each sample, its file and row."""
        return [(printable(self.path), str(self.first + row)) for row in range(len(self.stored))]


def table_samples(
    path: Path, columns: Sequence[Column], missing: Sequence[str], read: Callable[[Path], Any]
) -> SampleFile:
    """The rows of a table, encoded as those that a model was trained on; columns that it does not know are skipped.

    Args:
      path: a CSV or Parquet file with a header.
      columns: those of the model.
      missing: the words that stand for a missing value.
      read: what reads the file; see `table_reader`.

    Raises:
      UserError: a file that cannot be read, lacks a column, or has text in a numeric one.
    """
    table = read(path)
    cells = known_cells(table, path, missing, columns)
    return SampleFile(path, stored_rows(cells, columns, path), first_line(table))


def array_samples(path: Path, shape: Sequence[int]) -> SampleFile:
    """The arrays of a file `.npz` (its `inputs`) or `.npy`.

    Raises:
      UserError: a file that cannot be read, or samples of another shape.
    """
    return SampleFile(path, checked_shape(read_inputs(path), shape, path), 0)


def checked_shape(inputs: np.ndarray, shape: Sequence[int], path: Path) -> np.ndarray:
    """The samples of a file as float32 `[n, *shape]`; raises a `UserError` for another shape, none, or values that are
    no numbers or not finite."""
    if list(inputs.shape[1:]) != list(shape) or not len(inputs):
        raise UserError(f"{path} has samples {list(inputs.shape)}; expected [n, {', '.join(map(str, shape))}]")
    return checked_numbers(path.name, inputs)


def files_at(paths: Sequence[Path], suffixes: Sequence[str]) -> list[Path]:
    """Files, and all files in folders that end in one of the suffixes, hidden ones apart, as in training.

    Raises:
      UserError: a path that does not exist, or a folder that cannot be read or is without such files.
    """
    found = list[Path]()
    for path in paths:
        here = list_folder(path).others if path.is_dir() else [path]
        below = [one for one in here if one.suffix.lower() in suffixes or one == path]
        if not path.exists() or not below:
            lack = "holds no such file" if path.exists() else "does not exist"
            raise UserError(f"{path} {lack}; expected files that end in {', '.join(suffixes)}, or a folder of them")
        found += below
    return found


def in_pieces(files: Sequence[SampleFile]) -> Iterator[Decoded]:
    """The samples of files, a few at a time, with their positions among all."""
    stored: Any = np.concatenate([one.stored for one in files])
    for start in range(0, len(stored), SAMPLES_AT_ONCE):
        some = stored[start : start + SAMPLES_AT_ONCE]
        yield list(range(start, start + len(some))), some
