"""A party's own samples, as the terms have them: a folder of images, or a table."""

from pathlib import Path

from fdgjax.data.sources.cells import cells_of
from fdgjax.data.sources.known_columns import labels_in, stored_rows
from fdgjax.data.sources.table_files import read_table
from fdgjax.data.sources.tables import words_of
from fdgjax.deploy.image_folder import decoded_folder, digest_of, files_of
from fdgjax.deploy.terms import OwnSamples, Terms
from fdgjax.utils.errors import UserError


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


def version_of(place: Path, terms: Terms) -> str:
    """A word that changes with the names, sizes and times of the samples' files. Raises like `own_samples`."""
    if terms.columns:
        stat = found_table(place).stat()
        return repr((stat.st_size, stat.st_mtime_ns))
    return digest_of(place, files_of(place, terms.class_names), terms.class_names, terms.sample_shape)


def own_table(path: Path, terms: Terms) -> OwnSamples:
    """The rows of a table.

    Raises:
      UserError: a file that cannot be read, a column that is missing, or a label that is missing or unknown.
    """
    where = terms.config.data
    cells = cells_of(read_table(found_table(path)), path, words_of(where.missing))
    labels = labels_in(cells, where.label, terms.class_names, path)
    return OwnSamples(stored_rows(cells, terms.columns, path), labels)


def found_table(path: Path) -> Path:
    """The path of a table that is there; raises a `UserError` otherwise."""
    if not path.is_file():
        raise UserError(f"no file {path}; expected a CSV or Parquet file; see table in node-config")
    return path
