"""Labelled samples of one's own, for a model that knows their classes: folders of images, tables or arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.groups import numbered
from fdgjax.data.sources.array_files import read_arrays
from fdgjax.data.sources.arrays import check_one_each, words_of_each
from fdgjax.data.sources.file_groups import file_groups
from fdgjax.data.sources.known_columns import known_cells, labels_in, stored_rows
from fdgjax.data.sources.loading import table_reader
from fdgjax.data.sources.table_files import SUFFIXES
from fdgjax.data.sources.table_labels import group_names
from fdgjax.inference.images import Decoded, ImagePath, decoded_images
from fdgjax.inference.labelled_folder import labelled_images
from fdgjax.inference.predictor import columns_of, described
from fdgjax.inference.tables import SampleFile, checked_shape, files_at, in_pieces
from fdgjax.utils.errors import UserError, printable


class LabelledSamples(NamedTuple):
    """labels: int `[n]`. domains, names: of each sample; a domain is '' if there are none. pieces: the samples that can
    be read, a few at a time, with their positions. groups: int `[n]`, see `fdgjax.data.groups`; None if there are none.
    """

    labels: np.ndarray
    domains: Sequence[str]
    names: Sequence[str]
    pieces: Iterable[Decoded]
    groups: np.ndarray | None = None


def labelled_samples(facts: Mapping[str, Any], data: Path, group: str = "") -> LabelledSamples:
    """The labelled samples in a folder or file, for a model of these facts; `group`: like `config.data.group`.

    Raises:
      NoGroupError: samples whose group is not said.
      UserError: data that do not exist or cannot be read, or a class that the model does not know.
    """
    return READERS[described(facts)](facts, data, group)


def of_images(facts: Mapping[str, Any], data: Path, group: str) -> LabelledSamples:
    """A folder of class folders, or of a domain each with these."""
    found = labelled_images(data, facts["classes"], facts.get("dataset", ""))
    paths = [ImagePath(one.path, named=False) for one in found]
    labels = np.array([one.label for one in found])
    pieces, domains = decoded_images(facts["image_shape"], paths), [one.domain for one in found]
    names = file_groups([one.path.name for one in found], group) if group else None
    groups = None if names is None else numbered(np.unique(domains, return_inverse=True)[1], names)
    return LabelledSamples(labels, domains, [str(one.path) for one in found], pieces, groups)


def of_tables(facts: Mapping[str, Any], data: Path, group: str) -> LabelledSamples:
    """A table, or a folder of a table for each domain."""
    columns, reader = columns_of(facts), table_reader(facts.get("dataset", ""))

    def read(path: Path) -> Stored:
        table = reader(path)
        cells = known_cells(table, path, facts["missing"], columns, facts["label"])
        labels = labels_in(cells, facts["label"], facts["classes"], path)
        groups = group_names(table, group, path, facts["missing"]) if group else ()
        return Stored(stored_rows(cells, columns, path), labels, groups)

    return of_files(data, SUFFIXES, read)


def of_arrays(facts: Mapping[str, Any], data: Path, group: str) -> LabelledSamples:
    """A file of arrays, or a folder of one for each domain; they bring their groups."""
    if group:
        raise UserError(f"--group got '{group}', but arrays bring their groups, as the array 'groups'; expected none")

    def read(path: Path) -> Stored:
        own = read_arrays(path)
        labels = own.labels
        inputs, classes = checked_shape(own.inputs, facts["sample_shape"], path), len(facts["classes"])
        check_one_each(str(path), inputs, labels)
        if not np.issubdtype(labels.dtype, np.integer) or not 0 <= labels.min() <= labels.max() < classes:
            whole = np.issubdtype(labels.dtype, np.number)
            found = f" from {labels.min()} to {labels.max()}" if whole else ""
            raise UserError(f"{path} has labels {labels.dtype}{found}; expected whole numbers from 0 to {classes - 1}")
        return Stored(inputs, labels, () if own.groups is None else words_of_each(str(path), own, "groups"))

    return of_files(data, (".npz",), read)


class Stored(NamedTuple):
    """The inputs and labels of a file, and the names of the samples' groups; () for samples that are not grouped."""

    inputs: np.ndarray
    labels: np.ndarray
    groups: Sequence[str]


def of_files(data: Path, suffixes: Sequence[str], read: Callable[[Path], Stored]) -> LabelledSamples:
    """The samples of a file, or of each file of a folder as a domain."""
    paths = files_at([data], suffixes)
    each = [read(path) for path in paths]
    files = [SampleFile(path, one.inputs, 0) for path, one in zip(paths, each, strict=True)]
    sizes = [len(one.labels) for one in each]
    domains = [path.stem if data.is_dir() else "" for path, size in zip(paths, sizes, strict=True) for _ in range(size)]
    names = [f"{printable(name)}:{row}" for one in files for name, row in one.names]
    grouped = [name for one in each for name in one.groups]
    groups = numbered(np.repeat(np.arange(len(each)), sizes), grouped) if all(one.groups for one in each) else None
    return LabelledSamples(np.concatenate([one.labels for one in each]), domains, names, in_pieces(files), groups)


READERS: Mapping[str, Callable[[Mapping[str, Any], Path, str], LabelledSamples]] = {
    "image_shape": of_images,
    "columns": of_tables,
    "sample_shape": of_arrays,
}
"""How labelled samples are read, by the fact that says what samples are."""
