"""A party's own samples, as the terms have them: a folder of images, or a table; and which of them it trains on."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.config import split_seed_of
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.known_columns import known_cells, labels_in, stored_rows
from fdgjax.data.sources.loading import table_reader
from fdgjax.data.sources.table_labels import group_names
from fdgjax.deploy.image_folder import decoded_folder, files_of, folder_digest, groups_of
from fdgjax.deploy.terms import OwnSamples, Terms, as_data, joined, no_samples
from fdgjax.utils.errors import UserError, printable
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
    return decoded_folder(place, terms.class_names, terms.sample_shape, cache, terms.config.data.group)


def undecoded_samples(place: Path, terms: Terms) -> OwnSamples:
    """`own_samples` whose inputs are missing if they are images: none is decoded."""
    if terms.columns:
        return own_table(place, terms)
    files = files_of(place, terms.class_names)
    labels = np.array([label for _, label in files], np.int32)
    return no_samples(terms)._replace(labels=labels, groups=groups_of(files, terms.config.data.group))


def count_trained(places: OwnPlaces, terms: Terms, party: int) -> int:
    """The number of a party's training samples, 0 for the unseen one; no image is decoded. Raises like `own_parts`."""
    return len(positions(undecoded_samples(places.samples, terms), places, terms, party)[0])


def own_parts(places: OwnPlaces, terms: Terms, party: int, cache: Path) -> OwnParts:
    """A party's samples by their use.

    Raises:
      UserError: like `own_samples`, too few samples to hold some out, or a group both trained on and held out.
    """
    own = own_samples(places.samples, terms, cache)
    parts = OwnParts(*map(own.at, positions(own, places, terms, party)))
    if places.held_out is None:
        return parts
    extra = own_samples(places.held_out, terms, cache)
    if party == terms.unseen:
        return parts._replace(target=joined([own, extra]))
    check_apart(own, extra, places)
    return parts._replace(validation=extra)


def check_apart(trained: OwnSamples, held_out: OwnSamples, places: OwnPlaces) -> None:
    """Raises a `UserError` if a group has samples that are trained on and others that are held out."""
    if trained.groups is None or held_out.groups is None:
        return
    if len(both := np.intersect1d(trained.groups, held_out.groups)):
        raise UserError(
            f"{places.held_out} and {places.samples} share {len(both):,} group(s), such as {printable(both[0])}; "
            "expected all samples of a group in one of them, so that none that is trained on is evaluated on"
        )


def positions(own: OwnSamples, places: OwnPlaces, terms: Terms, party: int) -> tuple[np.ndarray, ...]:
    """Positions of a party's training, validation, test and, if it is unseen, target samples; ascending."""
    samples = len(own.labels)
    every, nothing = np.arange(samples), np.zeros(0, np.int64)
    unseen = party == terms.unseen
    if places.held_out is not None or places.whole:
        return (nothing, nothing, nothing, every) if unseen else (every, nothing, nothing, nothing)
    where = terms.config.data
    groups = as_data(own, terms).groups
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
      UserError: a file that cannot be read, a column that is missing, a label that is missing or unknown, or a row
        without a group.
    """
    where = terms.config.data
    table = table_reader(where.name)(found_table(path))
    missing = words_of(where.missing)
    cells = known_cells(table, path, missing, terms.columns, where.label)
    labels = labels_in(cells, where.label, terms.class_names, path)
    groups = np.array(group_names(table, where.group, path, missing), np.str_) if where.group else None
    return OwnSamples(stored_rows(cells, terms.columns, path), labels, groups)


def found_table(path: Path) -> Path:
    """The path of a table that is there; raises a `UserError` otherwise."""
    if not path.is_file():
        raise UserError(f"no file {path}; expected a CSV or Parquet file; see table in node-config")
    return path
