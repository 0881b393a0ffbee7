"""A party's own samples, as the terms have them: a folder of images, or a table; and which of them it trains on."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.config import split_seed_of
from fdgjax.data.groups import numbered
from fdgjax.data.protocols import PROTOCOLS, SplitSpec
from fdgjax.data.sources.file_groups import file_groups
from fdgjax.data.sources.known_columns import known_cells, labels_in, stored_rows
from fdgjax.data.sources.loading import table_reader
from fdgjax.data.sources.table_labels import group_names
from fdgjax.deploy.image_folder import decoded_folder, files_of, folder_digest
from fdgjax.deploy.terms import OwnSamples, Terms
from fdgjax.utils.errors import UserError
from fdgjax.utils.words import words_of


class OwnPlaces(NamedTuple):
    """Where a party's samples are, and which of them it trains on.

    samples: a folder of images, or a table. held_out: another one, of samples for evaluation alone; None to hold some
    of its samples out by the terms' protocol. whole: whether it trains on all samples and has none to evaluate on.
    """

    samples: Path
    held_out: Path | None = None
    whole: bool = False


class OwnParts(NamedTuple):
    """A party's samples by their use. All of the unseen party's are `target`, or `test` where the protocol has that."""

    train: OwnSamples
    validation: OwnSamples
    test: OwnSamples
    target: OwnSamples


def own_samples(place: Path, terms: Terms, cache: Path) -> OwnSamples:
    """The samples of a folder of images, which are kept in `cache` once they are decoded, or of a table.

    Raises:
      UserError: like `decoded_folder`, or like `own_table`.
    """
    if terms.columns:
        return own_table(place, terms)
    return decoded_folder(place, terms.class_names, terms.sample_shape, cache)


def count_samples(place: Path, terms: Terms) -> int:
    """The number of samples; no image is decoded. Raises like `own_samples`."""
    return len(own_table(place, terms).labels) if terms.columns else len(files_of(place, terms.class_names))


def groups_of(place: Path, terms: Terms) -> np.ndarray | None:
    """The groups of the samples by `config.data.group`, int32 `[samples]`; None if they are not grouped. Raises like
    `own_samples`, or for a sample without a group."""
    where = terms.config.data
    if not where.group:
        return None
    if terms.columns:
        names = group_names(table_reader(where.name)(found_table(place)), where.group, place)
    else:
        names = file_groups([path.name for path, _ in files_of(place, terms.class_names)], where.group)
    return numbered(np.zeros(len(names), np.int32), names)


def count_trained(places: OwnPlaces, terms: Terms, party: int) -> int:
    """The number of a party's training samples, 0 for the unseen one; no image is decoded. Raises like `own_parts`."""
    return len(positions(count_samples(places.samples, terms), places, terms, party)[0])


def own_parts(places: OwnPlaces, terms: Terms, party: int, cache: Path) -> OwnParts:
    """A party's samples by their use.

    Raises:
      UserError: like `own_samples`, or too few samples to hold some out.
    """
    own = own_samples(places.samples, terms, cache)
    each = [OwnSamples(own.inputs[rows], own.labels[rows]) for rows in positions(len(own.labels), places, terms, party)]
    if places.held_out is None:
        return OwnParts(*each)
    extra = own_samples(places.held_out, terms, cache)
    if party == terms.unseen:
        target = OwnSamples(*(np.concatenate(pair) for pair in zip(own, extra, strict=True)))
        return OwnParts(*each)._replace(target=target)
    return OwnParts(*each)._replace(validation=extra)


def positions(samples: int, places: OwnPlaces, terms: Terms, party: int) -> tuple[np.ndarray, ...]:
    """Positions of a party's training, validation, test and, if it is unseen, target samples; ascending."""
    every, nothing = np.arange(samples), np.zeros(0, np.int64)
    unseen = party == terms.unseen
    if places.held_out is not None or places.whole:
        return (nothing, nothing, nothing, every) if unseen else (every, nothing, nothing, nothing)
    where, groups = terms.config.data, groups_of(places.samples, terms)
    how = SplitSpec(validation=where.validation, test=where.test, seed=split_seed_of(terms.config, terms.config.seed))
    train, validation, test = PROTOCOLS[where.protocol].own(samples, party, how, groups)
    if unseen:
        return nothing, nothing, nothing, test if len(test) else every
    return train, validation, test, nothing


def version_of(place: Path, terms: Terms) -> str:
    """A word that changes with the names, sizes and times of the samples' files. Raises like `own_samples`."""
    if terms.columns:
        stat = found_table(place).stat()
        return repr((stat.st_size, stat.st_mtime_ns))
    return folder_digest(place, files_of(place, terms.class_names), terms.class_names, terms.sample_shape)


def own_table(path: Path, terms: Terms) -> OwnSamples:
    """The rows of a table.

    Raises:
      UserError: a file that cannot be read, a column that is missing, or a label that is missing or unknown.
    """
    where = terms.config.data
    table = table_reader(where.name)(found_table(path))
    cells = known_cells(table, path, words_of(where.missing), terms.columns, where.label)
    labels = labels_in(cells, where.label, terms.class_names, path)
    return OwnSamples(stored_rows(cells, terms.columns, path), labels)


def found_table(path: Path) -> Path:
    """The path of a table that is there; raises a `UserError` otherwise."""
    if not path.is_file():
        raise UserError(f"no file {path}; expected a CSV or Parquet file; see table in node-config")
    return path
