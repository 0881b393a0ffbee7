"""Made-up tables of three hospitals, which differ in ages, in what is missing, and in a column that one lacks."""

import csv
from pathlib import Path

import numpy as np

NAMES = ("east", "north", "west")
COLUMNS = ("age", "dose", "sex", "ward", "sick")


def write_hospitals(folder: Path, rows: int = 24, seed: int = 0) -> Path:
    """Writes a table for each hospital; `sick` follows from age and sex."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number, name in enumerate(NAMES):
        age, sex = rng.normal(50 + 8 * number, 12, rows).round(1), rng.integers(0, 2, rows)
        sick = age / 50 + sex + rng.normal(0, 0.3, rows) > 1.6 + 0.1 * number
        sick[:2] = True, False
        dose = [f"{value:.2f}" if rng.random() > 0.3 else "?" for value in rng.normal(3, 1, rows)]
        wards = [("A", "B", "C", "")[value] for value in rng.integers(0, 4, rows)]
        written = {
            "age": age,
            "dose": dose,
            "sex": ["fm"[value] for value in sex],
            "ward": wards,
            "sick": ["yes" if value else "no" for value in sick],
        }
        names = [column for column in COLUMNS if (name, column) != ("west", "ward")]
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(names)
            writer.writerows(zip(*(written[column] for column in names), strict=True))
    return folder
