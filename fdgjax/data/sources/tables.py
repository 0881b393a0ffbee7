"""Tables, a CSV or Parquet file for each domain, as one array of numbers: `DATA/<domain>.csv`.

pyarrow reads the files. A column is numeric if all its values in all files are numbers, and categorical if none is, or
if it is declared so; a column that a file lacks is missing in all of its rows.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.columns import Column
from fdgjax.data.sources.cells import Cells, as_number, categories_of, cells_of, codes_of, numbers_of
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.listing import by_domain, is_folder, list_folder, say_skipped
from fdgjax.data.sources.rounding import rounding
from fdgjax.data.sources.table_files import SUFFIXES, read_table
from fdgjax.data.sources.table_labels import class_labels, group_names, numeric_labels, owner_names, split_names
from fdgjax.utils.errors import LISTED, UserError, printable, unknown
from fdgjax.utils.words import folded, quoted, spelt_apart

LOGGER = logging.getLogger("fdgjax")
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
DATE = re.compile(r"(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4})([T ]\d{1,2}:\d{2}.*)?")
"""A date with a year of four digits, in any order, with or without a time."""
MOST_CATEGORIES = 50
"""A text column with more values than this, and more than half of them different, is a name rather than a category."""


class TableOptions(NamedTuple):
    """What the columns are.

    label: the column with the class, or, if `numeric`, with the number to be predicted. categorical: columns that are
    categories although they may be written as numbers. ignored: columns that are left out. missing: words that stand
    for a missing value, besides an empty cell; `COLUMN=WORD` in one column. group: the column that says which rows stay
    together in every split, split: that which says what they are for (`fdgjax.data.given_splits`), owner: that which
    says which client has them; '' for none. None of these is an input.
    """

    label: str = ""
    categorical: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    numeric: bool = False
    group: str = ""
    split: str = ""
    owner: str = ""

    @property
    def apart(self) -> dict[str, str]:
        """The columns that every table has and that are no inputs, by their keys in `config.data`."""
        named = {"label": self.label, "group": self.group, "split": self.split, "owner": self.owner}
        return {key: name for key, name in named.items() if name}


NO_OPTIONS = TableOptions()


class Tables(NamedTuple):
    """The files of a data set of tables, by domain, and how one of them is read: into a pyarrow table."""

    files: Mapping[str, Path]
    read: Callable[[Path], Any] = read_table


def table_folder(data_dir: str) -> Tables:
    """The tables in a folder, a domain each, in the order of their names.

    Raises:
      UserError: no such folder, fewer than two tables, or two of one name.
    """
    expected = "a folder with a table for each domain, such as hospital1.csv, hospital2.csv (or .parquet)"
    if not data_dir:
        raise UserError(f"config.data.dir is empty; expected {expected}")
    root = Path(data_dir).expanduser().absolute()
    if not is_folder(root):
        raise UserError(f"no folder {root} (config.data.dir); expected {expected}")
    others = list_folder(root).others
    found = [path for path in others if path.suffix.lower() in SUFFIXES]
    files = by_domain(found)
    if len(files) < 2:
        raise UserError(f"{root} has {len(files)} table(s); expected {expected}, at least two")
    say_skipped(root, {"files that are no tables": [path for path in others if path not in found]}, lost=False)
    return Tables(files)


def read_tables(tables: Tables, options: TableOptions) -> Domains:
    """The tables as one data set: numbers and indices of categories, NaN where a value is missing.

    Raises:
      UserError: a file that cannot be read; no label column, a row without label, group, split or owner, a single
        class or number, or numeric labels that float32 rounds by much of their spread; text among numbers; two
        spellings of a column's name; no column besides the label.
    """
    cells, left, words = used_cells(tables, options)
    labels = {domain: own[options.label] for domain, own in cells.items()}
    classes: tuple[str, ...]
    classes, of_label = (numeric_labels if options.numeric else class_labels)(options.label, tables.files, labels)
    rows = {domain: len(own.missing) for domain, own in labels.items()}
    columns, values = [], []
    for name in left:
        own = {domain: of_domain[name] for domain, of_domain in cells.items() if name in of_domain}
        column = column_of(name, own, tables.files, categorical=name in options.categorical)
        codes = partial(codes_of, categories=column.categories) if column.categories else numbers_of
        nothing = {domain: np.full(rows[domain], np.nan, np.float32) for domain in cells if domain not in own}
        columns.append(column)
        values.append(np.concatenate([codes(own[domain]) if domain in own else nothing[domain] for domain in cells]))
    say_columns(columns, tables.files, cells)
    domains = np.repeat(np.arange(len(rows), dtype=np.int32), list(rows.values()))
    found = Domains(
        inputs=np.stack(values, axis=1),
        labels=of_label,
        domains=domains,
        domain_names=tuple(cells),
        class_names=classes,
        columns=tuple(columns),
    )
    return found.said(words)


OF_A_ROW: Mapping[str, Callable[[Any, str, Path, Sequence[str]], list[str]]] = {
    "group": group_names,
    "split": split_names,
    "owner": owner_names,
}
"""How a column is read that says something of each row, by its key."""


class Used(NamedTuple):
    """cells: of each domain's columns that are used. left: the names of all of these but the label. words: of each row,
    those of the columns that say something of it, see `Domains.said`."""

    cells: Mapping[str, Mapping[str, Cells]]
    left: Sequence[str]
    words: Mapping[str, Sequence[str]]


def used_cells(tables: Tables, options: TableOptions) -> Used:
    """What is used of the tables. Other columns may be of any type.

    Raises:
      UserError: like `read_tables`, except for what cells have.
    """
    found = {domain: tables.read(path) for domain, path in tables.files.items()}
    each = {domain: own.column_names for domain, own in found.items()}
    check_names(tables.files, each)
    names = list(dict.fromkeys(name for own in each.values() for name in own))
    check_options(options, names, tables.files, each)
    apart = list(options.apart.values())
    left = [name for name in names if name not in apart and name not in options.ignored]
    if not left:
        raise UserError(f"the tables have no column besides {' and '.join(map(repr, apart))}; expected at least one")
    used = {options.label, *left}
    cells = {
        domain: cells_of(own.select([name for name in each[domain] if name in used]), path, options.missing)
        for (domain, own), path in zip(found.items(), tables.files.values(), strict=True)
    }
    words = {
        f"{key}s": [
            word
            for own, path in zip(found.values(), tables.files.values(), strict=True)
            for word in OF_A_ROW[key](own, name, path, options.missing)
        ]
        for key, name in options.apart.items()
        if key in OF_A_ROW
    }
    return Used(cells, left, words)


def column_of(name: str, cells: Mapping[str, Cells], files: Mapping[str, Path], *, categorical: bool) -> Column:
    """A column, from its cells in the domains that have it.

    Raises:
      UserError: numbers with decimal commas, text among numbers, dates, or so many texts that they are no categories.
    """
    if not categorical:
        check_commas(name, cells, files)
    filled = [one for one in cells.values() if not one.empty]
    if not categorical and all(one.numbers is not None for one in filled):
        say_rounded(name, filled)
        return Column(name)
    if not categorical and any(one.has_numbers for one in filled):
        domain, (row, text) = next((d, one.first_text()) for d, one in cells.items() if one.numbers is None)
        # Words that stand for a missing value are separated by commas.
        missing = f"set config.data.missing='{quoted(text)}' if it is no value, or "
        raise UserError(
            f"column '{name}' of {files[domain]} has '{text}' in line {row}, and numbers elsewhere; expected numbers; "
            f"mend it, or {missing}set config.data.categorical={quoted(name)}"
        )
    categories, count = categories_of(filled), sum(len(one.missing) for one in filled)
    if twins := spelt_apart(categories):
        LOGGER.warning(
            printable(
                f"column '{name}' has '{twins[0]}' and '{twins[1]}', two categories that differ in capitals or the "
                "form of accents alone"
            )
        )
    if not categorical and categories and all(map(DATE.fullmatch, categories)):
        domain, one = next((domain, one) for domain, one in cells.items() if categories[0] in one.coded.texts)
        raise UserError(
            f"column '{name}' of {files[domain]} has '{categories[0]}' in line {one.line_of(categories[0])}, a date; "
            f"expected numbers or categories; leave it out by config.data.ignored={quoted(name)}, write it as a number "
            f"such as days, or declare config.data.categorical={quoted(name)}"
        )
    if not categorical and len(categories) > max(MOST_CATEGORIES, count // 2):
        raise UserError(
            f"column '{name}' has {len(categories):,} different texts in {count:,} rows, such as '{categories[0]}'; "
            f"expected categories; leave it out by config.data.ignored={quoted(name)}, or declare "
            "config.data.categorical"
        )
    return Column(name, categories)


def say_rounded(name: str, filled: Sequence[Cells]) -> None:
    """Warns of a column whose differences float32 rounds away."""
    numbers = np.concatenate([one.numbers for one in filled if one.numbers is not None] or [np.zeros(0)])
    if lost := rounding(numbers):
        LOGGER.warning(printable(f"column '{name}' has {lost}; subtract a constant from them"))


def check_commas(name: str, cells: Mapping[str, Cells], files: Mapping[str, Path]) -> None:
    """Raises a `UserError` if all texts of a column, or some beside numbers, are numbers with a comma. They are not
    read as numbers, since 1,500 may be either of two."""
    worded = {domain: one for domain, one in cells.items() if one.numbers is None}
    texts = [text for one in worded.values() for text in one.coded.texts if as_number(text) is None]
    with_comma = [text for text in texts if DECIMAL_COMMA.fullmatch(text)]
    if with_comma and (len(with_comma) == len(texts) or any(one.has_numbers for one in cells.values())):
        domain, one = next((domain, one) for domain, one in worded.items() if with_comma[0] in one.coded.texts)
        text = with_comma[0]
        raise UserError(
            f"column '{name}' of {files[domain]} has '{text}' in line {one.line_of(text)}, a number with a comma; "
            f"expected numbers such as 1500 or 1.5, without signs for thousands; write them so, or declare "
            f"config.data.categorical={quoted(name)}"
        )


def check_names(files: Mapping[str, Path], each: Mapping[str, Sequence[str]]) -> None:
    """Raises a `UserError` for two spellings of a column's name."""
    seen: dict[str, tuple[str, str]] = {}
    for domain, own in each.items():
        for name in own:
            before, where = seen.setdefault(folded(name), (name, domain))
            if before != name:
                raise UserError(
                    f"columns '{before}' of {files[where].name} and '{name}' of {files[domain].name} differ in "
                    "capitals or the form of accents alone; expected one name for a column; rename one"
                )


def check_options(
    options: TableOptions,
    names: Sequence[str],
    files: Mapping[str, Path],
    each: Mapping[str, Sequence[str]],
) -> None:
    """Raises a `UserError` for a column that no table has, a table without one of `TableOptions.apart`, or a column
    that is two of these."""
    if not options.label:
        raise UserError(
            f"config.data.label is empty; expected the column with the {'number' if options.numeric else 'class'}, one "
            f"of: {', '.join(names[:LISTED])}" + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
        )
    for key, listed in (
        *((key, (name,)) for key, name in options.apart.items()),
        ("categorical", options.categorical),
        ("ignored", options.ignored),
    ):
        for name in listed:
            if name not in names:
                raise unknown(f"column of config.data.{key}", name, names)
    for word in options.missing:
        name, equals, _ = word.partition("=")
        if equals and name not in names:
            raise unknown("column of config.data.missing", name, names)
    use_of = dict[str, str]()
    for key, name in options.apart.items():
        if (other := use_of.setdefault(name, key)) != key:
            raise UserError(f"config.data.{key} got '{name}', which is config.data.{other}; expected another column")
    for domain, own in each.items():
        for key, name in options.apart.items():
            if name not in own:
                raise UserError(f"{files[domain]} has no column '{name}' (config.data.{key}); it has: {', '.join(own)}")


def say_columns(columns: Sequence[Column], files: Mapping[str, Path], cells: Mapping[str, Mapping[str, Cells]]) -> None:
    """Logs which columns are what, and which domains lack which; warns of columns that one domain alone has."""
    numbers = [column.name for column in columns if not column.categories]
    words = [f"{column.name} ({len(column.categories)})" for column in columns if column.categories]
    parts = [f"{kind}: {', '.join(own)}" for kind, own in (("numbers", numbers), ("categories", words)) if own]
    LOGGER.info(printable(f"{len(files)} tables; {'; '.join(parts)}"))
    for domain, own in cells.items():
        if lacking := [column.name for column in columns if column.name not in own or own[column.name].empty]:
            LOGGER.info(printable(f"{domain} has no values of {', '.join(lacking)}"))
    for domain, own in cells.items():
        others = [each for other, each in cells.items() if other != domain]
        filled = [name for name, values in own.items() if not values.empty]
        alone = [name for name in filled if all(name not in each or each[name].empty for each in others)]
        if alone:
            leave = ",".join(map(quoted, alone))
            line = (
                f"{domain} alone has values of {', '.join(alone)}: a model learns little from them, and every table to "
                f"be predicted must have these columns; config.data.ignored={leave} leaves them out"
            )
            LOGGER.warning(printable(line))
