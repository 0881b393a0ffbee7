"""Tables of domains: what is a number, a category or missing, and each mistake in one line."""

import datetime
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fdgjax.data.columns import Column
from fdgjax.data.sources.cells import codes_of, of_texts
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.known_columns import known_cells, labels_in, stored_rows
from fdgjax.data.sources.loading import load_data
from fdgjax.data.sources.table_files import read_table
from fdgjax.data.sources.tables import TableOptions
from fdgjax.utils.errors import UserError

NORTH = "age,pain,sex,sick\n63,typical,1,yes\n41,none,0,no\n,none,1,no\n"
SOUTH = "sick,age,pain,dose\nno,-9,atypical,2.5\nyes,57.5,,?\n"


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def loaded(folder: Path, **options: Any) -> Domains:
    table = TableOptions(**{"label": "sick", "missing": ("?", "-9"), **options})
    return load_data("table", data_dir=str(folder), table=table)


def test_columns_are_told_apart_and_what_is_missing_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = loaded(written(tmp_path, {"north.csv": NORTH, "south.csv": SOUTH}), categorical=("sex",))
    nan = np.nan
    expected = [[63, 2, 1, nan], [41, 1, 0, nan], [nan, 1, 1, nan], [nan, 0, nan, 2.5], [57.5, nan, nan, nan]]
    assert data.columns == (
        Column("age"),
        Column("pain", ("atypical", "none", "typical")),
        Column("sex", ("0", "1")),
        Column("dose"),
    )
    np.testing.assert_array_equal(data.inputs, np.array(expected, np.float32))
    assert data.class_names == ("no", "yes")
    assert data.labels.tolist() == [1, 0, 0, 0, 1]
    assert data.domain_names == ("north", "south")
    assert data.domains.tolist() == [0, 0, 0, 1, 1]
    assert not data.images
    assert "north alone has values of sex: " in caplog.text
    assert "south alone has values of dose: " in caplog.text


def test_parquet_semicolons_tabs_and_numbers_as_text_are_the_same_table(tmp_path: Path) -> None:
    north = written(tmp_path, {"north.csv": NORTH, "south.csv": SOUTH})
    first = loaded(north)
    other = tmp_path / "other"
    other.mkdir()
    (other / "north.tsv").write_text("\ufeff" + NORTH.replace(",", "\t"), encoding="utf-8")
    table = pa.table({"sick": ["no", "yes"], "age": [None, 57.5], "pain": ["atypical", None], "dose": ["2.50", "?"]})
    pyarrow.parquet.write_table(table, other / "south.parquet")
    second = loaded(other)
    np.testing.assert_array_equal(first.inputs, second.inputs)
    assert first.columns == second.columns


def test_a_word_is_missing_in_one_column_alone(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.csv": "x,y,sick\n0,0,no\n0.0,1,yes\n", "b.csv": "x,y,sick\n2,0,no\n-9,3,yes\n"})
    data = loaded(folder, missing=("-9", "x=0"))
    nan = np.nan
    np.testing.assert_array_equal(data.inputs, np.array([[nan, 0], [nan, 1], [2, 0], [nan, 3]], np.float32))
    with pytest.raises(UserError, match=r"unknown column of config\.data\.missing 'z'"):
        loaded(folder, missing=("z=0",))


@pytest.mark.parametrize("labels", [("yes,no", "Yes,no"), ("True,False", "true,false"), ("é,no", "e\u0301,no")])
def test_classes_that_differ_in_spelling_are_refused_and_categories_said(
    labels: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, own in zip("ab", labels, strict=True):
        first, second = own.split(",")
        written(tmp_path, {f"{name}.csv": f"x,kind,sick\n1,{first},{first}\n2,{second},{second}\n"})
    with pytest.raises(UserError, match="differ in capitals or"):
        loaded(tmp_path)
    loaded(tmp_path, label="x")
    assert "column 'kind' has" in caplog.text
    assert "two categories that differ in capitals or" in caplog.text


def test_numbers_that_float32_rounds_much_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Dates as 20240101 differ by less than float32 keeps; seconds of a year and measured numbers do not."""
    rng = np.random.default_rng(0)
    columns = {
        "date": 20240100 + np.arange(1, 29),
        "seconds": 1_700_000_000 + rng.integers(0, 30_000_000, 28),
        "measured": 100 + rng.normal(size=28),
    }
    lines = [
        f"{','.join(columns)},sick",
        *(f"{a},{b},{c},{'yes' if a % 2 else 'no'}" for a, b, c in zip(*columns.values(), strict=True)),
    ]
    data = loaded(written(tmp_path, dict.fromkeys(("a.csv", "b.csv"), "\n".join(lines) + "\n")))
    assert len(np.unique(data.inputs[:, 0])) < 28
    warned = [record.getMessage() for record in caplog.records if "float32 rounds" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith("column 'date' has numbers such as 20240101 ")


def test_a_numeric_label_is_refused_if_float32_rounds_its_differences(tmp_path: Path) -> None:
    """Seconds of some minutes since 1970 are 128 apart in float32; those of a year differ by far more."""
    seconds = np.array([0, 30, 90, 121, 240, 333])

    def labels(numbers: np.ndarray) -> np.ndarray:
        north, south = (
            "x,t\n" + "".join(f"{place},{number}\n" for place, number in enumerate(own)) for own in np.split(numbers, 2)
        )
        return loaded(written(tmp_path, {"north.csv": north, "south.csv": south}), label="t", numeric=True).labels

    said = (
        r"^the label 't' has numbers such as 1700000000 with a deviation of 117; float32 rounds them by up to 51; .* "
    )
    with pytest.raises(UserError, match=said + "subtract a constant from them, such as 1700000000$") as error:
        labels(1_700_000_000 + seconds)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(labels(seconds), seconds)
    year = 1_700_000_000 + 90_000 * seconds
    np.testing.assert_allclose(labels(year), year, rtol=0, atol=64)


def test_a_header_may_be_long_and_its_names_have_line_breaks(tmp_path: Path) -> None:
    names = [f"ENSG{number:011d}_expression" for number in range(50_000)]
    (path,) = written(tmp_path, {"a.csv": f"{','.join(names)}\n{','.join('1' * len(names))}\n"}).iterdir()
    assert read_table(path).column_names == names
    path.write_text('"of\nday",date,sick\n1,2024-01-01,yes\n', encoding="utf-8")
    assert read_table(path).to_pylist() == [{"of\nday": "1", "date": "2024-01-01", "sick": "yes"}]


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.tsv", "height, in cm, lying\tsick", "180\tyes"),
        ("a.TSV", "height, in cm, lying\tsick", "180\tyes"),
        ("a.tsv", '"height, in cm, lying";sick', "180;yes"),
        ("a.csv", '"height, in cm, lying";sick', "180;yes"),
        ("a.csv", '"height, in cm, lying"\tsick', "180\tyes"),
        ("a.csv", '"height, in cm, lying",sick', "180,yes"),
    ],
)
def test_a_column_may_have_commas_in_its_name(name: str, header: str, row: str, tmp_path: Path) -> None:
    (path,) = written(tmp_path, {name: f"{header}\n{row}\n"}).iterdir()
    assert read_table(path).to_pylist() == [{"height, in cm, lying": "180", "sick": "yes"}]


@pytest.mark.parametrize("index", [["__index_level_0__"], ["patient"], [{"kind": "range", "start": 0, "stop": 2}]])
def test_the_index_of_a_pandas_frame_is_no_column(index: list[Any], tmp_path: Path) -> None:
    table = pa.table({"age": [50, 60], "sick": ["no", "yes"]})
    for name in index:
        table = table.append_column(name, pa.array([7, 9])) if isinstance(name, str) else table
    metadata = {"pandas": json.dumps({"index_columns": index, "columns": []})}
    for name in ("a", "b"):
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / f"{name}.parquet")
    assert loaded(tmp_path).columns == (Column("age"),)
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")  # a column of this name that is no index
    assert len(loaded(tmp_path).columns) == len(table.column_names) - 1


def test_a_column_that_is_not_used_may_be_of_any_type_and_an_empty_one_of_none(tmp_path: Path) -> None:
    days = [datetime.date(2020, 1, 1)] * 2
    for name, dose in (("a", [None, None]), ("b", [1.5, None])):
        table = pa.table({"day": days, "age": [1, 2], "dose": dose, "sick": ["no", "yes"]})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    data = loaded(tmp_path, ignored=("day",))
    assert data.columns == (Column("age"), Column("dose"))
    np.testing.assert_array_equal(data.inputs, np.array([[1, np.nan], [2, np.nan], [1, 1.5], [2, np.nan]], np.float32))
    cells = known_cells(table, tmp_path, (), data.columns, "sick")
    np.testing.assert_array_equal(stored_rows(cells, data.columns, tmp_path), data.inputs[2:])
    assert labels_in(cells, "sick", data.class_names, tmp_path).tolist() == [0, 1]
    for read in (lambda: loaded(tmp_path), lambda: known_cells(table, tmp_path, (), (Column("day"),))):
        with pytest.raises(UserError, match=r"column 'day' of .* has values of the type date32"):
            read()


def test_whole_numbers_are_classes_in_their_order(tmp_path: Path) -> None:
    files = {"a.csv": "x,y\n1,10\n2,9.0\n", "b.csv": "x,y\n3,10\n"}
    data = loaded(written(tmp_path, files), label="y")
    assert data.class_names == ("9", "10")
    assert data.labels.tolist() == [1, 0, 1]


def test_a_number_is_the_same_category_class_or_missing_value_beside_words_and_without(tmp_path: Path) -> None:
    files = {"a.csv": "grade,y\n1.0,1.0\n2.0,2.0\n", "b.csv": "grade,y\n1.0,1\n02,2.0\n-9.0,2\nunknown,other\n"}
    data = loaded(written(tmp_path, files), label="y", categorical=("grade",))
    assert data.columns == (Column("grade", ("1", "2", "unknown")),)
    np.testing.assert_array_equal(data.inputs[:, 0], np.array([0, 1, 0, 1, np.nan, 2], np.float32))
    assert data.class_names == ("1", "2", "other")
    assert data.labels.tolist() == [0, 1, 0, 1, 1, 2]


def test_categories_that_were_named_with_a_point_are_still_found() -> None:
    cells = of_texts(["1.0", "2", "high", None, "3"], frozenset(), ())
    np.testing.assert_array_equal(codes_of(cells, ("1.0", "2.0", "high")), [0, 1, 2, np.nan, -1])


def test_numbers_that_are_infinite_in_float32_are_missing(tmp_path: Path) -> None:
    big = {"a.csv": "age,sick\n1e39,no\n2,yes\n", "b.csv": "age,sick\n-1e300,no\n3.4e38,yes\n"}
    with warnings.catch_warnings(action="error"):
        data = loaded(written(tmp_path, big))
    np.testing.assert_array_equal(data.inputs[:, 0], np.array([np.nan, 2, np.nan, 3.4e38], np.float32))
    with pytest.raises(UserError, match="has no 'age' in line 2"):
        loaded(tmp_path, label="age", numeric=True)


MISTAKES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "no label column": ({}, {"label": "ill"}, "unknown column of config.data.label 'ill'"),
    "no label given": (
        {},
        {"label": ""},
        "is empty; expected .* one of: age, pain, sex, sick, dose",
    ),
    "a file without it": ({"b.csv": "age,pain\n1,none\n"}, {}, r"b.csv has no column 'sick'"),
    "text in a number": (
        {"b.csv": "sick,age\nno,41\nyes,old\n"},
        {},
        r"'age' of .*b.csv has 'old' in line 3",
    ),
    "decimal commas": (
        {"north.csv": "age;dose;sick\n50;;no\n60;1,5;yes\n", "south.csv": "age,dose,sick\n50,2,no\n"},
        {},
        r"column 'dose' of .*north.csv has '1,5' in line 3, a number with a comma; expected numbers such as 1500",
    ),
    "decimal commas beside other texts": (
        {"north.csv": "age;dose;sick\n50;low;no\n60;,5;yes\n", "south.csv": "age,dose,sick\n50,2,no\n"},
        {},
        r"column 'dose' of .*north.csv has ',5' in line 3, a number with a comma; expected numbers such as 1500 or 1.5",
    ),
    "text with a comma in a number": (
        {"b.csv": 'sick,age\nno,41\nyes,"old, very"\n'},
        {},
        r"'age' of .*b.csv has 'old, very' in line 3.* mend it, or set config.data.missing='\"old, very\"' if",
    ),
    "one class": ({"north.csv": "age,sick\n1,no\n", "south.csv": "age,sick\n2,no\n"}, {}, "has the only class 'no'"),
    "two spellings": ({"b.csv": "sick,Age\nno,41\n"}, {}, r"columns 'Age' of b.csv and 'age' of north.csv differ"),
    "a name twice": ({"b.csv": "sick,age,age\nno,41,2\n"}, {}, r"b.csv has the column 'age' twice"),
    "no name": ({"b.csv": ",sick,age\n0,no,41\n"}, {}, r"column 1 of .*b.csv has no name"),
    "a row without label": ({"b.csv": "sick,age\nno,1\n?,41\n"}, {}, r"b.csv has no 'sick' in line 3"),
    "a measured label": (
        {"north.csv": "sick,age\nno,1\n", "south.csv": "sick,age\nno,57.5\n"},
        {"label": "age"},
        r"'age' of .*south.csv has numbers such as 57.5",
    ),
    "no rows": ({"b.csv": "sick,age\n"}, {}, r"b.csv has no rows"),
    "no file": ({"b.csv": ""}, {}, r"cannot read .*b.csv"),
    "an empty line": (
        {"b.csv": 'sick,age\nno,"1\n\n"\n\nno,2\n\n'},
        {},
        r"b.csv has an empty line, 5; expected none before",
    ),
    "an empty first line": (
        {"b.csv": "\n" + SOUTH.replace(",", ";")},
        {},
        r"b.csv has an empty line, 1; expected none before the last row; remove it",
    ),
    "an empty first line of Windows after the mark of UTF-8": (
        {"b.tsv": "\ufeff\r\n" + SOUTH.replace(",", "\t")},
        {},
        r"b.tsv has an empty line, 1; expected",
    ),
    "ragged": ({"b.csv": "sick,age\nno,1,2,3\n"}, {}, r"cannot read .*b.csv"),
    "a name as category": (
        {f"{d}.csv": "id,sick\n" + "".join(f"p{d}{i},{'yes' if i % 2 else 'no'}\n" for i in range(60)) for d in "bc"},
        {},
        "column 'id' has 120 different texts",
    ),
    "dates that are few": (
        {f"{d}.csv": f"seen,sick\n,no\n2024-01-1{d},no\n2024-02-1{d} 8:30,yes\n" for d in "12"},
        {},
        r"column 'seen' of .*1.csv has '2024-01-11' in line 3, a date; .* config.data.ignored=seen, .*categorical=seen",
    ),
    "dates of other countries": (
        {"b.csv": "born,sick\n24.12.1980,no\n1/2/1990,yes\n"},
        {},
        r"column 'born' of .*b.csv has '1/2/1990' in line 3, a date",
    ),
    "an unknown option": ({}, {"ignored": ("weight",)}, "unknown column of config.data.ignored 'weight'"),
}


def test_texts_with_commas_may_be_declared_categories_or_stand_among_words(tmp_path: Path) -> None:
    files = {"a.csv": "risks;sick\n1,2;no\n2;yes\n", "b.csv": "risks;sick\n1,3;no\n1,2;yes\n"}
    data = loaded(written(tmp_path, files), categorical=("risks",))
    assert data.columns == (Column("risks", ("1,2", "1,3", "2")),)
    written(tmp_path, {"a.csv": "risks;sick\n1,2;no\nnone;yes\n"})
    assert loaded(tmp_path).columns == (Column("risks", ("1,2", "1,3", "none")),)


def test_dates_may_be_declared_categories_and_codes_that_are_no_dates_are_categories(tmp_path: Path) -> None:
    rows = "seen,code,sick\n2024-01-11,1.2.3,no\n2024-01-12,3-2024,yes\n"
    data = loaded(written(tmp_path, {"a.csv": rows, "b.csv": rows}), categorical=("seen",))
    assert [column.name for column in data.columns if column.categories] == ["seen", "code"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_line(mistake: str, tmp_path: Path) -> None:
    files, options, words = MISTAKES[mistake]
    with pytest.raises(UserError, match=words) as error:
        loaded(written(tmp_path, {"north.csv": NORTH, "south.csv": SOUTH} | files), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.csv": NORTH}, r"has 1 table"),
        ({"a.csv": NORTH, "a.parquet": "", "b.csv": SOUTH}, "are files of one domain"),
    ],
)
def test_a_folder_needs_a_table_for_each_of_two_domains(files: Mapping[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        loaded(written(tmp_path, files))


def test_heart_disease_is_read_with_and_without_a_header_and_in_either_words(tmp_path: Path) -> None:
    row = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0"
    header = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
    files = {
        "cleveland.csv": f"{header}\n{row},0\n{row},3\n",
        "reprocessed.hungarian.data": f"{header}\n{row},'not_present'\n{row},'present'\n",
        "processed.switzerland.data": f"{row},0\n{row},4\n",
        "processed.va.data": f"{row.replace('6.0', '?')},0\n{row},1\n",
    }
    table = TableOptions("num", ("sex", "thal"), (), ("?", "-9"))
    data = load_data("heart_disease", data_dir=str(written(tmp_path, files)), table=table)
    assert data.class_names == ("absent", "present")
    assert data.labels.tolist() == [0, 1] * 4
    assert data.domain_names == ("cleveland", "hungary", "switzerland", "va")
    assert len(data.columns) == 13
    assert np.isnan(data.inputs).sum() == 1
