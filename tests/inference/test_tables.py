"""Runs on tables and arrays: predicted, exported and evaluated from files, raw columns in and probabilities out."""

import csv
import datetime
import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdgjax
from fdgjax.cli.evaluate import main as evaluate
from fdgjax.cli.export import main as export
from fdgjax.cli.predict import main as predict
from fdgjax.data.columns import Column
from fdgjax.data.sources.cells import TEXT_MISSING, codes_of, numbers_of, of_texts
from fdgjax.data.sources.heart_disease import COLUMNS
from fdgjax.data.sources.table_files import read_table
from fdgjax.inference.classifier import in_batches, open_classifier, probabilities_of
from fdgjax.inference.labelled_samples import labelled_samples
from fdgjax.inference.new_samples import samples_at
from fdgjax.inference.program import read_program
from fdgjax.inference.program_use import use_tables
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from tests.hospitals import write_hospitals
from tests.runs import perceptron

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hospitals(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def run(hospitals: Path, perceptron: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    keys: dict[str, Any] = {"data.dir": hospitals, "data.label": "sick", "rounds": 3, "devices": 1, "seeds": 2}
    experiment = fdgjax.experiment("fedavg:table", target="west", model="perceptron", **keys)
    experiment.train(folder)
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.slow
def test_a_new_table_is_predicted_as_the_run_itself_predicts_it(run: Path, hospitals: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "new.csv"
    with open(shuffled, "w", newline="", encoding="utf-8") as stream:
        each = rows(hospitals / "north.csv")
        names = ["ward", "sex", "name", "age", "dose"]
        csv.writer(stream).writerows([names, *([one.get(name, "x") for name in names] for one in each)])
    assert predict(["predict", str(run), str(shuffled), "--seed", "1", "--out", str(tmp_path / "out.csv")]) == 0
    found = rows(tmp_path / "out.csv")
    assert [one["line"] for one in found] == [str(line) for line in range(2, 26)]
    result = fdgjax.open_run(run)
    own = result.data.inputs[result.data.domains == 1]
    expected = result.predict_proba(own, seed=1)
    np.testing.assert_allclose([float(one["p(yes)"]) for one in found], expected[:, 1], atol=2e-6)
    assert not np.allclose(expected, result.predict_proba(own, seed=0)), "each seed has its own model and encoding"


@pytest.mark.slow
def test_what_a_new_table_lacks_is_said_in_one_line(
    run: Path, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (hospitals / "north.csv").read_text()
    for changed, words in (
        (
            text.replace("age", "years"),
            "lacks 1 of the 4 columns .* age; it has also: years, sick; rename",
        ),
        (text.replace("dose", "dose\n", 1), "cannot read"),
        (re.sub(r"\n\d+\.\d", "\nold", text), "column 'age' of .* has 'old' in line 2; expected numbers"),
    ):
        file = tmp_path / "new.csv"
        file.write_text(changed)
        assert predict(["predict", str(run), str(file)]) == 2
        said = capsys.readouterr().err
        assert re.search(words, said), said
        assert said.count("\n") == 1


@pytest.mark.slow
def test_the_program_has_raw_columns_in_and_the_card_says_how(
    run: Path, hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    assert export(["export", str(run), "--out", str(out)]) == 0
    data = fdgjax.open_run(run).data
    program, classifier = read_program((out / "program.bin").read_bytes()).call, open_classifier(run)
    expected = in_batches(probabilities_of(classifier), data.inputs)
    np.testing.assert_allclose(np.asarray(program(jnp.asarray(data.inputs))), expected, atol=1e-6)
    facts = json.loads((out / "model.json").read_text())
    assert facts["columns"][3] == {"name": "ward", "categories": ["A", "B", "C"]}
    card = (out / "README.md").read_text()
    assert "| `sex` | `f`, `m` |" in card
    assert "held-out rows of the clients" in " ".join(card.split())
    assert "images" not in card
    assert "Starts from" not in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(out)
    (out / "new.csv").write_text((hospitals / "north.csv").read_text())
    told: dict[str, jax.Array] = {}
    exec(code, told)  # what a reader of the card would run
    np.testing.assert_allclose(np.asarray(told["probabilities"]), expected[data.domains == 1], atol=1e-6)
    header, *lines = (hospitals / "north.csv").read_text().splitlines()
    lines = [re.sub(r"^[^,]*", word, line) for word, line in zip(("NA", "null", "", " ?"), lines, strict=False)]
    header = header.replace(",", " , ")
    (out / "new.csv").write_text("\ufeff" + "\r\n".join([header, *lines]), encoding="utf-8")  # as spreadsheets do
    assert predict(["predict", str(run), "new.csv", "--out", "out.csv"]) == 0
    exec(code, told)
    own = [float(one["p(yes)"]) for one in rows(out / "out.csv")]
    np.testing.assert_allclose(np.asarray(told["probabilities"])[:, 1], own, atol=2e-6)


COLUMNS_OF_CARD = (Column("thal", ("3", "7.0", "x")), Column("age", ()))


def of_card() -> dict[str, Any]:
    """What the functions of the card's code are called."""
    facts: dict[str, Any] = {"columns": [{"name": name, "categories": list(names)} for name, names in COLUMNS_OF_CARD]}
    facts |= {"missing": [*TEXT_MISSING, "-9"], "classes": ["a", "b"]}
    (code,) = re.findall(r"(?s)(?<=\n)(def number.*?)\nwith open", use_tables(facts))
    told: dict[str, Any] = {"facts": facts, "numpy": np}
    exec(code, told)
    return told


def check_cell(told: dict[str, Any], text: str) -> None:
    """A cell as the card's code reads it is that which predict reads, or both refuse it."""
    cells = of_texts([text.strip()], frozenset((*TEXT_MISSING, "-9")), [-9.0])
    category, age = (partial(told["cell"], text, column._asdict()) for column in COLUMNS_OF_CARD)
    np.testing.assert_array_equal(np.float32(category()), codes_of(cells, COLUMNS_OF_CARD[0].categories)[0])
    if cells.numbers is None:
        with pytest.raises(ValueError, match="expected numbers"):
            age()
    else:
        np.testing.assert_array_equal(np.float32(age()), numbers_of(cells)[0])


@given(number=st.one_of(st.integers(-99, 99), st.floats()), form=st.sampled_from(["", ".2f", ".1f", "e"]))
def test_the_cards_code_reads_a_number_as_predict_does(number: float, form: str) -> None:
    check_cell(of_card(), f" {format(number, form)}")


@pytest.mark.parametrize(
    "text",
    [
        "1_0",
        "1e39",
        "-1e39",
        "3.4028235e38",
        "3.4028236e38",
        "1e400",
        "inf",
        "NaN",
        "NAN",
        "",
        " ",
        "x",
        "-9.0",
        "7",
        "3.0",
    ],
)
def test_the_cards_code_reads_a_word_as_predict_does(text: str) -> None:
    check_cell(of_card(), text)


@pytest.mark.slow
def test_a_table_with_labels_is_evaluated(
    run: Path, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_wards = tmp_path / "data"
    with_wards.mkdir()
    (with_wards / "._east.csv").write_bytes(b"\x00\x05\x16\x07")  # as macOS leaves beside a file
    for name in ("east", "north"):
        (with_wards / f"{name}.csv").write_text((hospitals / f"{name}.csv").read_text())
    file = tmp_path / "figures.json"
    assert evaluate(["evaluate", str(run), "--data", str(with_wards), "--json", str(file)]) == 0
    assert "of 48 rows" in capsys.readouterr().out
    assert predict(["predict", str(run), str(with_wards), "--out", str(tmp_path / "all.csv")]) == 0
    assert len(rows(tmp_path / "all.csv")) == 48
    result = fdgjax.open_run(run)
    seen = result.data.domains < 2
    right = result.predict(result.data.inputs[seen]) == result.data.labels[seen]
    assert json.loads(file.read_text())["accuracy"] == pytest.approx(right.mean())


@pytest.mark.slow
def test_a_column_that_the_model_does_not_know_may_be_of_any_type(
    run: Path, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = read_table(hospitals / "north.csv")
    pyarrow.parquet.write_table(
        table.append_column("day", pa.array([datetime.date(2020, 1, 1)] * len(table))), tmp_path / "north.parquet"
    )
    said = []
    for file in (hospitals / "north.csv", tmp_path / "north.parquet"):
        assert predict(["predict", str(run), str(file)]) == 0
        said.append(capsys.readouterr().out.replace(str(file), "FILE"))
        assert evaluate(["evaluate", str(run), "--data", str(file)]) == 0
        assert "of 24 rows" in capsys.readouterr().out
    assert said[0] == said[1]


def test_intervals_count_the_groups_that_are_asked_for_or_that_the_run_has(
    run: Path, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    head, *lines = (hospitals / "north.csv").read_text().splitlines()
    file, found = tmp_path / "north.csv", tmp_path / "found.json"
    grouped_lines = [f"{head},patient", *(f"{line},{place // 4}" for place, line in enumerate(lines))]
    file.write_text("\n".join(grouped_lines) + "\n")
    widths = []
    for words in ([], ["--group=patient"]):
        assert evaluate(["evaluate", str(run), "--data", str(file), "--json", str(found), *words]) == 0
        shown = json.loads(found.read_text())
        widths.append([np.ptp(each) for each in (shown["interval"], shown["figures"]["sensitivity"]["interval"])])
    assert (np.array(widths[1]) > 1.3 * np.array(widths[0])).all()
    assert evaluate(["evaluate", str(run), "--data", str(hospitals / "north.csv"), "--group=patient"]) == 2
    assert "has no column 'patient' with the groups" in capsys.readouterr().err
    grouped = tmp_path / "grouped"
    shutil.copytree(run, grouped)
    content = read_checked_json(grouped / "config.json")
    content["config"]["data"]["group"] = "patient"
    write_checked_json(grouped / "config.json", content)
    assert export(["export", str(grouped), "--out", str(tmp_path / "taken")]) == 0
    for path in (grouped, tmp_path / "taken"):
        assert evaluate(["evaluate", str(path), "--data", str(file), "--json", str(found)]) == 0
        assert json.loads(found.read_text())["interval"] == shown["interval"]
    assert evaluate(["evaluate", str(grouped), "--data", str(hospitals / "north.csv")]) == 0
    assert re.search(r"'patient' with the groups; .*; intervals count single samples", caplog.text)


def test_files_like_those_that_were_trained_on_are_read_alike_with_and_without_header_and_labels(
    tmp_path: Path,
) -> None:
    row, header = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,?", ",".join(COLUMNS)
    texts: tuple[str, ...] = (f"{header}\n{row},'not_present'\n{row},'present'\n", f"{row},0\n{row},3\n")
    texts += tuple(text.replace(",", ";") for text in texts)
    facts: dict[str, Any] = {"columns": [{"name": name, "categories": []} for name in COLUMNS[:-1]], "missing": ["?"]}
    facts |= {"classes": ["absent", "present"], "label": "num", "dataset": "heart_disease"}
    expected = np.array([[*map(float, row.split(",")[:-1]), np.nan]] * 2, np.float32)
    file = tmp_path / "own.csv"
    for text in texts:
        file.write_text(text)
        found = labelled_samples(facts, file)
        assert found.labels.tolist() == [0, 1]
        samples = samples_at(facts, [file])
        for pieces in (found.pieces, samples.pieces):
            np.testing.assert_array_equal(np.concatenate([stored for _, stored in pieces]), expected)
        assert [row for _, row in samples.names] == (["2", "3"] if "num" in text else ["1", "2"])
    file.write_text("\ufeff" + "\n".join(",".join(line.split(",")[-2::-1]) for line in texts[0].split()))
    ((_, stored),) = samples_at(facts, [file]).pieces
    np.testing.assert_array_equal(stored, expected)
    (empty := tmp_path / "empty").mkdir()
    for path, lack in ((tmp_path / "none.csv", "does not exist"), (empty, "holds no such file")):
        with pytest.raises(UserError, match=f"{path.name} {lack}; expected files that end in"):
            samples_at(facts, [path])
    file.write_text(f"{header}\n{row},0\n{row},?\n")
    with pytest.raises(UserError, match="has no 'num' in line 3"):
        labelled_samples(facts, file)


@pytest.mark.slow
def test_arrays_of_any_shape_train_and_are_predicted_from_files(
    perceptron: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    data = {
        name: (rng.normal(number, 1, (20, 5, 2)), rng.integers(0, 2, 20).astype(np.int64))
        for number, name in enumerate("ab")
    }
    for name, (inputs, labels) in data.items():
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels)
    keys: dict[str, Any] = {"rounds": 1, "devices": 1, "data.standardise": True}
    given = fdgjax.experiment("fedavg", data=data, model="perceptron", **keys).train(tmp_path / "given")
    keys |= {"data.dir": tmp_path, "batch_size": given.config.batch_size, "local_epochs": given.config.local_epochs}
    keys |= {"method.client_learning_rate": given.config.method.client_learning_rate}
    read = fdgjax.experiment("fedavg:arrays", model="perceptron", **keys).train(tmp_path / "read")
    new = data["b"][0].astype(np.float32)
    np.testing.assert_array_equal(given.predict_proba(new), read.predict_proba(new))
    with pytest.raises(UserError, match="got 10 numbers that are not finite"):
        given.predict_proba(np.full((1, 5, 2), 1e39))
    np.save(tmp_path / "new.npy", new)
    assert (
        predict(["predict", str(tmp_path / "read"), str(tmp_path / "new.npy"), "--out", str(tmp_path / "p.csv")]) == 0
    )
    found = [float(one["p(1)"]) for one in rows(tmp_path / "p.csv")]
    np.testing.assert_allclose(found, read.predict_proba(new)[:, 1], atol=2e-6)
    labels = np.zeros(len(new), np.int64)
    for wrong, own, said in (
        (np.where(new == new[0], np.nan, new), labels, "inputs that are not finite"),
        (new.astype(str), labels, "has inputs of <U"),
        (new[:0], labels[:0], r"has samples \[0, 5, 2\]"),
        (new, labels.astype(str), "has labels <U21; expected whole numbers from 0 to 1"),
        (new, labels[:3], r"has labels \[3\] for 20 samples"),
        (new, labels + 2, "from 2 to 2; expected whole numbers from 0 to 1"),
    ):
        np.savez(tmp_path / "mistake.npz", inputs=wrong, labels=own)
        assert evaluate(["evaluate", str(tmp_path / "read"), "--data", str(tmp_path / "mistake.npz")]) == 2
        assert re.search(said, capsys.readouterr().err)
