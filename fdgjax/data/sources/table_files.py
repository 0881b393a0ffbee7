"""Table files, read by pyarrow."""

import csv
import io
import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

from fdgjax.data.sources.cells import FIRST_LINE
from fdgjax.utils.errors import UserError, printable

LOGGER = logging.getLogger("fdgjax")
SUFFIXES = (".csv", ".tsv", ".parquet")
DELIMITERS = ",;\t"
EMPTY = ("\n", "\r\n")
"""An empty line."""


def read_table(path: Path, names: tuple[str, ...] = ()) -> Any:
    """A table file as a pyarrow table; of text files all columns are strings.

    Args:
      path: a CSV file with commas, semicolons or tabs, or a Parquet file.
      names: the columns of a text file without a header; () for one that has it.

    Raises:
      UserError: a file that cannot be read, is empty, or has columns without a name or of the same name.
    """
    import pyarrow as pa

    try:
        table = parquet(path) if path.suffix.lower() == ".parquet" else text_table(path, names)
    except UserError:
        raise
    except (OSError, pa.ArrowException, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise UserError(f"cannot read {path} ({reason}); expected a CSV file in UTF-8, or Parquet") from error
    found = [name.strip() for name in table.column_names]
    if "" in found:
        raise UserError(f"column {found.index('') + 1} of {path} has no name; expected one; name it or remove it")
    if doubled := [name for name, times in Counter(found).items() if times > 1]:
        raise UserError(f"{path} has the column '{doubled[0]}' twice; expected each name once; rename one")
    if not table.num_rows:
        raise UserError(f"{path} has no rows; expected at least one")
    return table.rename_columns(found).replace_schema_metadata({FIRST_LINE: "1" if names else "2"})


def parquet(path: Path) -> Any:
    """A Parquet file as a pyarrow table, without the index of a pandas frame, which numbers or names the rows."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    index = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    if found := [name for name in table.column_names if name in index]:
        LOGGER.info(printable(f"{path} has the index of a pandas frame, {', '.join(found)}, which is left out"))
    return table.drop_columns(found)


def text_table(path: Path, names: tuple[str, ...]) -> Any:
    """A text file as a pyarrow table of strings."""
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    with open(path, encoding="utf-8-sig", newline="") as stream:
        text = stream.read()
    delimiter = delimiter_of(text.partition("\n")[0], path)
    check_lines(text, delimiter, path)
    columns = list(names) or next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), list[str]())
    longest = max(map(len, io.StringIO(text)), default=0)
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(
            # A block holds whole rows; of at most four bytes a character.
            column_names=list(names) or None,
            use_threads=False,
            block_size=max(2**20, 8 * longest),
        ),
        parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
    )


def delimiter_of(header: str, path: Path) -> str:
    """The delimiter of a text file, from its first line: the most frequent outside of quotes, but tabs of a .tsv, whose
    names may well have commas."""
    if path.suffix.lower() == ".tsv" and "\t" in header:
        return "\t"
    return max(DELIMITERS, key=re.sub('"[^"]*("|$)', "", header).count)


def check_lines(text: str, delimiter: str, path: Path) -> None:
    """Raises a `UserError` for an empty line before the header, from which the delimiter is told, or among the rows,
    after which lines would be numbered wrongly; at the end of the file there may be any number."""
    rows = text.rstrip()
    if not (rows.startswith(EMPTY) or any(f"\n{line}" in rows for line in EMPTY)):
        return
    lines = csv.reader(io.StringIO(rows, newline=""), delimiter=delimiter)
    for row in lines:
        if not row:
            raise UserError(f"{path} has an empty line, {lines.line_num}; expected none before the last row; remove it")
