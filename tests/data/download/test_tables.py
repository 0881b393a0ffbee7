"""`fdgjax data heart_disease` from an archive of made-up patients, and the tables of the real ones."""

import csv
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fdgjax.cli.subcommands import main as fdgjax
from fdgjax.data.download.releases import HEART_DISEASE, RELEASES
from fdgjax.data.download.tables import with_header
from fdgjax.data.sources import heart_disease
from tests.data.download.archives import zipped
from tests.data.download.server import Served

HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
PATIENTS = {
    "processed.cleveland.data": "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,?,6.0,0\n" * 3,
    "processed.hungarian.data": "28,1,2,130,132,0,2,185,0,0,?,?,?,1\n" * 2,
    "processed.switzerland.data": "32,1,1,95,0,?,0,127,0,.7,1,?,?,1\n",
    "processed.va.data": "63,1,4,140,260,0,1,112,1,3,2,?,?,4\n44,0,4,130,209,0,1,127,0,-1.0,?,?,?,0\n",
}
"""Made up, with the oddities of the real ones: `?`, `.7`, a minus sign, a label from 0 to 4."""
HOSPITALS = {names[1]: hospital for hospital, names in heart_disease.HOSPITALS.items()}
OTHERS = {"Index": b"-", "cleveland.data": b"1 0 63 \xff\xfe", "costs/heart-disease.cost": b"age: 1.00\n"}


def archive(**changed: str) -> bytes:
    patients = PATIENTS | {name.replace("_", "."): text for name, text in changed.items()}
    return zipped({name: text.encode() for name, text in patients.items() if text} | OTHERS)


def fetch(server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, **release: Any) -> int:
    server.files["heart%2Bdisease.zip"] = content  # as it is asked for
    made_up = HEART_DISEASE._replace(**{"tree": "", "images": 8, **release})
    monkeypatch.setattr("fdgjax.cli.data.RELEASES", {"heart_disease": made_up})
    return fdgjax(["fdgjax", "data", "heart_disease", "--dir", str(folder), "--mirror", server.url, "--yes"])


def test_four_tables_with_a_header_and_every_value_as_it_was(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(server, tmp_path, monkeypatch, archive()) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("  licence  CC BY 4.0 (Janosi, Steinbrunn, Pfisterer, Detrano, 1988")
    assert said[2].endswith("8 rows")
    assert any(line.startswith("no checksum of heart+disease.zip is known") for line in said)
    assert said[-2].endswith("is fetched and verified: 8 rows in 4 domains")
    assert said[-1] == f"use it with --config.data.dir={tmp_path}"
    tables = {path.name: path.read_text() for path in (tmp_path / "heart_disease").glob("*.csv")}
    assert tables == {f"{HOSPITALS[name]}.csv": f"{HEADER}\n{rows}" for name, rows in PATIENTS.items()}
    assert sorted(path.name for path in (tmp_path / "heart_disease").iterdir()) == ["checksums.txt", *sorted(tables)]
    server.asked.clear()
    assert fetch(server, tmp_path, monkeypatch, archive()) == 0
    assert "is there: 8 rows in 4 domains, every byte as it was when it was fetched" in capsys.readouterr().out
    assert not server.asked
    (tmp_path / "heart_disease" / "va.csv").write_text(tables["va.csv"].replace("140", "141"))
    assert fetch(server, tmp_path, monkeypatch, archive()) == 2
    assert "va.csv differs from its checksum" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"processed_va_data": ""}, "no processed.va.data"),
        ({"processed_va_data": "1,2,3\n"}, "line 1 of processed.va.data has 3 values instead of 14"),
        ({"processed_hungarian_data": "\n \n"}, "processed.hungarian.data is empty"),
    ],
)
def test_another_archive_is_refused_as_a_whole(
    changed: dict[str, str],
    said: str,
    server: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fetch(server, tmp_path, monkeypatch, archive(**changed)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "heart_disease").exists()


def test_other_patients_than_the_released_ones_are_refused(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(server, tmp_path, monkeypatch, archive(), tree=HEART_DISEASE.tree) == 2
    assert f"the tables of heart_disease have the sha256 {tree_of(PATIENTS)}" in capsys.readouterr().err
    assert not (tmp_path / "heart_disease").exists()


def tree_of(patients: dict[str, str]) -> str:
    tables = {f"{HOSPITALS[name]}.csv": f"{HEADER}\n{rows}" for name, rows in patients.items()}
    lines = (f"{hashlib.sha256(tables[name].encode()).hexdigest()}  {name}\n" for name in sorted(tables))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_line_ends_are_ours_and_values_are_not() -> None:
    assert with_header("a,?\r\n .5 ,b", ("x", "y"), "f") == "x,y\na,?\n .5 ,b\n"


def test_the_release_has_as_many_patients_as_the_real_hospitals(shared_data: Path) -> None:
    """The copy has a header and a nominal label; in Hungary the second version of UCI's file."""
    folder = shared_data / "heart_disease"
    headers, patients = set(), Counter[str]()
    for path in folder.glob("*.data"):
        header, *rows = list(csv.reader(path.open()))
        headers.add(tuple(header))
        patients[path.name.split(".")[1]] = sum(1 for row in rows if row)
    assert headers == {heart_disease.COLUMNS}
    assert patients == {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
    assert patients.total() == RELEASES["heart_disease"].images
