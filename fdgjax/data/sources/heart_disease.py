"""UCI's Heart Disease: tables of four hospitals (Janosi, Steinbrunn, Pfisterer and Detrano, 1988; CC BY 4.0).

The label is whether a vessel is narrowed: `num` of UCI's files is 0 for absent and 1 to 4 for present, and others
write it in words.
"""

from pathlib import Path
from typing import Any

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
ABSENT = ("0", "0.0", "absent", "not_present")


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
    """A hospital's file, with or without a header, its label in two words; raises like `read_table`."""
    import pyarrow as pa

    with open(path, "rb") as stream:
        headless = not stream.read(256).lstrip().lower().startswith(b"age")
    table = read_table(path, COLUMNS if headless else ())
    if LABEL not in table.column_names:
        return table
    words = [str(value).strip(" '\"") for value in table.column(LABEL).to_pylist()]
    label = pa.array(["absent" if word in ABSENT else "present" for word in words])
    return table.set_column(table.column_names.index(LABEL), LABEL, label)
