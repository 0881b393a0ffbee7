"""Labelled samples of one's own, for a model that knows their classes: folders of images, tables or arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.sources.array_files import read_arrays
from fdgjax.data.sources.arrays import check_one_each
from fdgjax.data.sources.known_columns import known_cells, labels_in, stored_rows
from fdgjax.data.sources.loading import table_reader
from fdgjax.data.sources.table_files import SUFFIXES
from fdgjax.inference.images import Decoded, ImagePath, decoded_images
from fdgjax.inference.labelled_folder import labelled_images
from fdgjax.inference.predictor import columns_of, described
from fdgjax.inference.tables import SampleFile, checked_shape, files_at, in_pieces
from fdgjax.utils.errors import UserError, printable


class LabelledSamples(NamedTuple):
    """labels: int `[n]`. domains, names: of each sample; a domain is '' if there are none. pieces: the samples that can
    be read, a few at a time, with their positions."""

    labels: np.ndarray
    domains: Sequence[str]
    names: Sequence[str]
    pieces: Iterable[Decoded]


def labelled_samples(facts: Mapping[str, Any], data: Path) -> LabelledSamples:
    """The labelled samples in a folder or file, for a model of these facts.

    Raises:
      UserError: data that do not exist or cannot be read, or a class that the model does not know.
    """
    return READERS[described(facts)](facts, data)


def of_images(facts: Mapping[str, Any], data: Path) -> LabelledSamples:
    """A folder of class folders, or of a domain each with these."""
    found = labelled_images(data, facts["classes"], facts.get("dataset", ""))
    paths = [ImagePath(one.path, named=False) for one in found]
    labels = np.array([one.label for one in found])
    pieces = decoded_images(facts["image_shape"], paths)
    return LabelledSamples(labels, [one.domain for one in found], [str(one.path) for one in found], pieces)


def of_tables(facts: Mapping[str, Any], data: Path) -> LabelledSamples:
    """A table, or a folder of a table for each domain."""
    columns, reader = columns_of(facts), table_reader(facts.get("dataset", ""))

    def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
        cells = known_cells(reader(path), path, facts["missing"], columns, facts["label"])
        return stored_rows(cells, columns, path), labels_in(cells, facts["label"], facts["classes"], path)

    return of_files(data, SUFFIXES, read)


def of_arrays(facts: Mapping[str, Any], data: Path) -> LabelledSamples:
    """A file of arrays, or a folder of one for each domain."""

    def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
        stored, labels = read_arrays(path)
        inputs, classes = checked_shape(stored, facts["sample_shape"], path), len(facts["classes"])
        check_one_each(str(path), inputs, labels)
        if not np.issubdtype(labels.dtype, np.integer) or not 0 <= labels.min() <= labels.max() < classes:
            whole = np.issubdtype(labels.dtype, np.number)
            found = f" from {labels.min()} to {labels.max()}" if whole else ""
            raise UserError(f"{path} has labels {labels.dtype}{found}; expected whole numbers from 0 to {classes - 1}")
        return inputs, labels

    return of_files(data, (".npz",), read)


def of_files(
    data: Path, suffixes: Sequence[str], read: Callable[[Path], tuple[np.ndarray, np.ndarray]]
) -> LabelledSamples:
    """The samples of a file, or of each file of a folder as a domain."""
    paths = files_at([data], suffixes)
    each = [read(path) for path in paths]
    files = [SampleFile(path, stored, 0) for path, (stored, _) in zip(paths, each, strict=True)]
    domains = [
        path.stem if data.is_dir() else "" for path, (_, labels) in zip(paths, each, strict=True) for _ in labels
    ]
    names = [f"{printable(name)}:{row}" for one in files for name, row in one.names]
    return LabelledSamples(np.concatenate([labels for _, labels in each]), domains, names, in_pieces(files))


READERS: Mapping[str, Callable[[Mapping[str, Any], Path], LabelledSamples]] = {
    "image_shape": of_images,
    "columns": of_tables,
    "sample_shape": of_arrays,
}
"""How labelled samples are read, by the fact that says what samples are."""
