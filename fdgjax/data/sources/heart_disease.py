"""UCI's Heart Disease: tables of four hospitals (Janosi, Steinbrunn, Pfisterer and Detrano, 1988; CC BY 4.0).

The label is whether a vessel is narrowed: `num` of UCI's files is 0 for absent and 1 to 4 for present, and others
write it in words.
"""

import re
from pathlib import Path
from typing import Any

from fdgjax.data.sources.cells import as_number, spelt
from fdgjax.data.sources.listing import is_folder
from fdgjax.data.sources.table_files import read_table
from fdgjax.data.sources.tables import Tables
from fdgjax.utils.errors import UserError

LABEL = "num"
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal"),
    LABEL,
)
"""The columns of UCI's files, which have no header."""
CATEGORICAL = "sex,cp,fbs,restecg,exang,slope,thal"
HOSPITALS = {
    "cleveland": ("cleveland.csv", "processed.cleveland.data"),
    "hungary": ("hungary.csv", "processed.hungarian.data", "reprocessed.hungarian.data"),
    "switzerland": ("switzerland.csv", "processed.switzerland.data"),
    "va": ("va.csv", "processed.va.data"),
}
"""The domains, with the names of their files."""
WORDS = {"0": "absent", "absent": "absent", "not_present": "absent"} | dict.fromkeys(
    ("1", "2", "3", "4", "present"), "present"
)
"""The classes, by how they are written; other words, such as those for a missing label, stay."""


def heart_disease(data_dir: str) -> Tables:
    """The four hospitals' files in a folder, or in its folder `heart_disease`.

    Raises:
      UserError: a file is missing.
    """
    base = Path(data_dir).expanduser().absolute()
    root = base / "heart_disease" if is_folder(base / "heart_disease") else base
    found = {}
    for hospital, names in HOSPITALS.items():
        files = [root / name for name in names if (root / name).is_file()]
        if not data_dir or not files:
            raise UserError(
                f"no {names[0]} in {root if data_dir else 'config.data.dir, which is empty'}; expected a file for each "
                "hospital; `fdgjax data heart_disease --dir DIR` fetches them"
            )
        found[hospital] = files[0]
    return Tables(found, read_hospital)


def read_hospital(path: Path) -> Any:
    """A hospital's file, or another one with these columns, its label, if it has one, in two words; raises like
    `read_table`."""
    import pyarrow as pa

    table = read_table(path, COLUMNS if without_header(path) else ())
    if LABEL not in table.column_names:
        return table
    found = [None if value is None else spelt(str(value).strip(" '\"")) for value in table.column(LABEL).to_pylist()]
    label = pa.array([None if word is None else WORDS.get(word, word) for word in found], pa.string())
    return table.set_column(table.column_names.index(LABEL), LABEL, label)


def without_header(path: Path) -> bool:
    """Whether a file begins with a value, as UCI's do, instead of a column's name; False if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(256).decode("utf-8", "replace")
    except OSError:
        return False
    first = re.split("[,;\t\r\n]", start)[0].strip()
    return first == "?" or as_number(first) is not None
