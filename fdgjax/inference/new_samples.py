"""New samples to be predicted, read from files in the format of what a model was trained on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.data.sources.loading import table_reader
from fdgjax.data.sources.table_files import SUFFIXES
from fdgjax.inference.images import Decoded, decoded_images, images_at
from fdgjax.inference.predictor import columns_of, described
from fdgjax.inference.tables import SampleFile, array_samples, files_at, in_pieces, table_samples
from fdgjax.utils.errors import printable

ARRAYS = (".npz", ".npy")


class NewSamples(NamedTuple):
    """header: the names of what identifies a sample. names: that, for each sample. pieces: the samples that can be
    read, a few at a time, with their positions."""

    header: tuple[str, ...]
    names: Sequence[tuple[str, ...]]
    pieces: Iterable[Decoded]


def image_files(facts: Mapping[str, Any], paths: Sequence[Path]) -> NewSamples:
    """Images; see `fdgjax.inference.images`."""
    images = images_at(paths)
    names = [(printable(one.path),) for one in images]
    return NewSamples(("file",), names, decoded_images(facts["image_shape"], images))


def table_files(facts: Mapping[str, Any], paths: Sequence[Path]) -> NewSamples:
    """The rows of tables."""
    reader = table_reader(facts.get("dataset", ""))
    read = partial(table_samples, columns=columns_of(facts), missing=facts["missing"], read=reader)
    return rows_of([read(path) for path in files_at(paths, SUFFIXES)], "line")


def array_files(facts: Mapping[str, Any], paths: Sequence[Path]) -> NewSamples:
    """The samples of arrays."""
    read = partial(array_samples, shape=facts["sample_shape"])
    return rows_of([read(path) for path in files_at(paths, ARRAYS)], "index")


def rows_of(files: Sequence[SampleFile], number: str) -> NewSamples:
    """The rows of all files; `number`: what a row's number is called."""
    names = [name for one in files for name in one.names]
    return NewSamples(("file", number), names, in_pieces(files))


READERS: Mapping[str, Callable[[Mapping[str, Any], Sequence[Path]], NewSamples]] = {
    "image_shape": image_files,
    "columns": table_files,
    "sample_shape": array_files,
}
"""How samples are read, by the fact that says what they are."""


def samples_at(facts: Mapping[str, Any], paths: Sequence[Path]) -> NewSamples:
    """The samples that paths name, files or folders of them, for a model of these facts.

    Raises:
      UserError: a path that does not exist, a folder without samples, or samples of another kind or shape.
    """
    return READERS[described(facts)](facts, paths)
