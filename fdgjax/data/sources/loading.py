"""Loading a data set's arrays by its name."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.data.given_splits import Splits
from fdgjax.data.sources.array_files import array_folder
from fdgjax.data.sources.arrays import unresized
from fdgjax.data.sources.cache import (
    cache_root,
    publishing,
    read_arrays,
    read_cached,
    remove_abandoned,
    write_arrays,
    write_names,
)
from fdgjax.data.sources.decoding import DARK, dark_line
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.file_groups import file_groups
from fdgjax.data.sources.folders import folder_data
from fdgjax.data.sources.heart_disease import heart_disease, read_hospital
from fdgjax.data.sources.layouts import LAYOUTS
from fdgjax.data.sources.rotated import rotated_digits, rotated_mnist
from fdgjax.data.sources.source import Source
from fdgjax.data.sources.split_lists import listed_splits
from fdgjax.data.sources.table_files import read_table
from fdgjax.data.sources.tables import NO_OPTIONS, TableOptions, Tables, read_tables, table_folder
from fdgjax.utils.checksums import verify
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.registry import Registry, lookup

LOGGER = logging.getLogger("fdgjax")
VERSION = "1.1.0"
"""Version of the cache's contents; increase it whenever the same files give other contents."""

ATTEMPTS = 3
"""How often data is prepared at most. Once is enough unless the disk is faulty, or another process that also found the
cache damaged has just moved the new one aside to check it (`remove_damaged`)."""

FROM_FILES: Mapping[str, Callable[[str], Source]] = {
    "rotated_digits": rotated_digits,
    "rotated_mnist": rotated_mnist,
    **{name: folder_data(layout) for name, layout in LAYOUTS.items()},
}
"""Data sets of images, by name; an entry maps `data_dir` to the `Source` found there."""

Found = Source | Tables | Domains
"""A data set: files of images or tables that are yet to be read, or arrays."""

TABLE_DATA: Mapping[str, Callable[[str], Tables]] = {"heart_disease": heart_disease, "table": table_folder}
"""Data sets of tables, by name."""

TABLE_READERS: Mapping[str, Callable[[Path], Any]] = {"heart_disease": read_hospital}
"""How one table is read, into a pyarrow table, by the data set's name; `read_table` reads those of others."""

DATASETS: Registry[Callable[[str], Found]] = Registry("data set", {**FROM_FILES, **TABLE_DATA, "arrays": array_folder})
"""All data sets by name; user-defined ones are already arrays (`fdgjax.data.sources.arrays`)."""

SAME_IMAGES: Mapping[str, Callable[[str], Source]] = {
    "rotated_digits": partial(rotated_digits, same_images=True),
    "rotated_mnist": partial(rotated_mnist, same_images=True),
}
"""The data sets whose domains can show the same images, by name."""


def table_reader(name: str) -> Callable[[Path], Any]:
    """What reads a table like those of the data set of this name."""
    return TABLE_READERS.get(name, read_table)


def find_data(
    name: str, *, data_dir: str = "", same_images: bool = False, table: TableOptions = NO_OPTIONS
) -> Source | Domains:
    """What is known of a data set before its images are decoded; tables are read. Arguments and errors as those of
    `load_data`."""
    found: Found = lookup("data set", name, SAME_IMAGES if same_images else DATASETS)(data_dir)
    return read_tables(found, table) if isinstance(found, Tables) else found


def load_data(
    name: str,
    *,
    data_dir: str = "",
    image_size: int = 0,
    cache_dir: str = "",
    same_images: bool = False,
    table: TableOptions = NO_OPTIONS,
    group: str = "",
    split: str = "",
    owner: str = "",
) -> Domains:
    """A data set as arrays; images are decoded at the first call, and memory-mapped from the cache afterwards.

    Every byte of the cache is verified first; if it is damaged, this is logged and the cache is rebuilt.

    Args:
      name: one of `DATASETS`.
      data_dir: the folder with the data; not used by `rotated_digits`.
      image_size: height and width in pixels. 0 is the data set's native size (8 for digits, 28 for MNIST);
        folders of images have none. Images of another size are resized bilinearly with antialiasing, to a
        square.
      cache_dir: where decoded data is kept; empty for `$XDG_CACHE_HOME/fdgjax` or `~/.cache/fdgjax`. An entry
        belongs to one name, size and state of the source files (names, sizes, times).
      same_images: whether all domains show the same images; `SAME_IMAGES` has the data sets that can.
      table: what the columns of tables are.
      group: a regular expression for the files' names, see `fdgjax.data.sources.file_groups`; '' for images that are
        not grouped. owner: likewise of the client that has an image. Only for folders of images.
      split: a folder of lists, see `fdgjax.data.sources.split_lists`; '' for images without given splits. Only for
        folders of images.

    Returns:
      Tables as `read_tables` has them, and arrays as they are. Images uint8
        `[samples, image_size, image_size, channels]` (channels 1 for digits, 3 for folders) with labels and domains;
        the order of the samples depends on nothing but the files' names.

    Raises:
      UserError: an unknown name, missing or damaged files, a negative or missing size, an unwritable cache, names of
        files without a group or owner, or lists of other files.
    """
    if image_size < 0:
        raise UserError(
            f"config.data.image_size got {image_size}; expected a number of pixels, or 0 for the native size"
        )
    source = find_data(name, data_dir=data_dir, same_images=same_images, table=table)
    if isinstance(source, Domains):
        return unresized(source, name, image_size)
    size = image_size or source.native_size
    if not size:
        raise UserError(f"config.data.image_size got 0, but {name} has images of any size; expected pixels, such as 32")
    folder = cache_root(cache_dir) / f"{name}-{VERSION}-{source.fingerprint}"
    # Before the images are decoded.
    patterns = {"group": group, "owner": owner}
    words = {f"{key}s": file_groups(source.names, pattern, key) for key, pattern in patterns.items() if pattern}
    splits = splits_of_images(source, name, split)
    try:
        found = _from_cache(name, source, size, folder)
    except OSError as error:
        raise UserError(
            f"cannot read or write the cache {folder} ({error}); expected a folder with space; free some, "
            "or set config.data.cache_dir"
        ) from error
    return found._replace(splits=splits).said(words)


def splits_of_images(source: Source, name: str, split: str) -> Splits | None:
    """What a data set's images are for, by the lists in the folder `split`; None without it. Raises like
    `fdgjax.data.sources.split_lists.listed_splits`."""
    return listed_splits(source.names, split, LAYOUTS[name].own) if split else None


def _from_cache(name: str, source: Source, size: int, folder: Path) -> Domains:
    remove_abandoned(folder)
    arrays = folder / f"{size}px"
    for _ in range(ATTEMPTS):
        data = read_cached(arrays, read_arrays)
        if data is not None:
            return data
        _prepare(name, source, size, folder, arrays)
    raise UserError(
        f"the cache {arrays} is damaged however often it is written; expected a sound disk; check it, or set "
        "config.data.cache_dir"
    )


def _prepare(name: str, source: Source, size: int, folder: Path, arrays: Path) -> None:
    images = f"{source.samples:,} images, {source.description}"
    LOGGER.info("preparing %s at %d px: %s (once; cached in %s)", name, size, images, printable(arrays))
    records = folder / "records"
    check_space(source.samples * size * size * source.channels, folder)
    try:
        with publishing(arrays) as unfinished, contextlib.ExitStack() as until_decoded:
            # New records are published only after all of their images have been decoded.
            holder = read_cached(records, verify) or until_decoded.enter_context(publishing(records))
            _write_decoded(name, source, size, holder, unfinished)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # empty only after a failure: a folder with anything in it stays


def check_space(needed: int, folder: Path) -> None:
    """Raises a `UserError` if the disk of a folder, which need not exist yet, has fewer than `needed` bytes free."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    if needed > (free := shutil.disk_usage(there).free):
        raise UserError(
            f"the decoded images need {needed / 2**20:,.0f} MiB and {there} has {free / 2**20:,.0f} MiB free; expected "
            "enough space; lower config.data.image_size, or set config.data.cache_dir"
        )


def _write_decoded(name: str, source: Source, size: int, holder: Path, unfinished: Path) -> None:
    from fdgjax.data.sources import array_records  # here, so that cached data needs neither TFDS nor Grain

    builder = array_records.builder(name, VERSION, source, holder)
    array_records.prepare(builder)
    shape = (source.samples, size, size, source.channels)
    brightest = np.zeros(len(source.domain_names), np.uint8)
    write_arrays(unfinished, shape, watched(array_records.decoded(builder, size), brightest))
    write_names(unfinished, source.domain_names, source.class_names, source.description)
    for domain, most in zip(source.domain_names, brightest, strict=True):
        if most < DARK:
            LOGGER.warning(dark_line(domain, int(most)))


def watched(
    examples: Iterable[tuple[np.ndarray, int, int]], brightest: np.ndarray
) -> Iterator[tuple[np.ndarray, int, int]]:
    """The same images, labels and domains; the brightest pixel of each domain goes into `brightest`."""
    for image, label, domain in examples:
        brightest[domain] = max(brightest[domain], image.max())
        yield image, label, domain
