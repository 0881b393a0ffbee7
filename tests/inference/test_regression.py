"""A run that predicts a column of numbers: trained, predicted, exported; raw columns in, numbers in their unit out."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fdgjax
from fdgjax.cli.evaluate import main as evaluate
from fdgjax.cli.export import main as export
from fdgjax.cli.predict import main as predict
from fdgjax.inference.classifier import open_classifier
from fdgjax.inference.program import read_program
from tests.hospitals import write_hospitals
from tests.runs import perceptron

pytestmark = pytest.mark.slow

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hospitals(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def run(hospitals: Path, perceptron: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    keys: Any = {"data.dir": hospitals, "data.label": "age", "task": "regression", "rounds": 3, "seeds": 2}
    experiment = fdgjax.experiment("fedavg:table", target="west", model="perceptron", devices=1, **keys)
    experiment.train(folder)
    return folder


def predicted(argv: list[str], out: Path) -> list[dict[str, str]]:
    assert predict(["predict", *argv, "--out", str(out)]) == 0
    with open(out, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_new_table_is_predicted_in_the_label_s_unit(run: Path, hospitals: Path, tmp_path: Path) -> None:
    found = predicted([str(run), str(hospitals / "north.csv"), "--seed", "1"], tmp_path / "out.csv")
    assert list(found[0]) == ["file", "line", "prediction"]
    result = fdgjax.open_run(run)
    expected = result.predict(result.data.inputs[result.data.domains == 1], seed=1)
    np.testing.assert_allclose([float(one["prediction"]) for one in found], expected, rtol=1e-5)
    own = result.data.labels[result.built.parts[1].train[0]]
    assert abs(expected.mean() - own.mean()) < 3 * own.std(), "near the ages that it was trained on"
    assert not np.allclose(expected, result.predict(result.data.inputs[result.data.domains == 1], seed=0))


def test_an_export_predicts_the_same_numbers_and_its_card_says_so(run: Path, hospitals: Path, tmp_path: Path) -> None:
    assert export(["export", str(run), "--out", str(tmp_path / "model")]) == 0
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (facts["classes"], facts["prediction"], facts["label"]) == ([], "a number in the label's unit", "age")
    data = fdgjax.open_run(run).data
    numbers = np.asarray(read_program((tmp_path / "model" / "program.bin").read_bytes()).call(data.inputs))
    assert numbers.shape == (len(data.inputs), 1)
    np.testing.assert_allclose(numbers[:, 0], fdgjax.open_run(run).predict(data.inputs), rtol=1e-5)
    ours, theirs = (
        predicted([str(path), str(hospitals / "east.csv")], tmp_path / "out.csv") for path in (run, tmp_path / "model")
    )
    assert [one["line"] for one in ours] == [one["line"] for one in theirs]
    of_run, of_export = ([float(one["prediction"]) for one in rows] for rows in (ours, theirs))
    np.testing.assert_allclose(of_export, of_run, rtol=1e-5)
    card = (tmp_path / "model" / "README.md").read_text()
    scale = open_classifier(run).label_scale
    assert scale is not None
    for words in (
        "a regression of age",
        f"of mean {scale.mean:.6g}",
        "predictions = program.call",
        "| RMSE on `west` |",
    ):
        assert words in card
    assert not re.search("probabilit|class|None", card), "nothing of a classifier's"


def test_what_is_of_classes_alone_is_refused_in_one_line(
    run: Path, hospitals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north, made = str(hospitals / "north.csv"), str(tmp_path / "made")
    assert export(["fdgjax", str(run), "--out", made]) == 0
    capsys.readouterr()
    for main, argv, words in (
        (
            predict,
            [made, north, "--coverage", "0.9"],
            "neither intervals nor distances are computed; expected no --cov",
        ),
        (predict, [made, north, "--refuse-above", "95%"], "neither intervals nor distances are computed"),
        (evaluate, [str(run), "--data", north], "predicts numbers, and these are figures of classes"),
        (predict, [str(run), north, "--calibrated"], "without probabilities; expected no --calibrated"),
        (predict, [str(run), north, "--coverage", "0.9"], "expected no sets of classes or distances"),
        (predict, [str(run), north, "--adapt", "tent"], "needs classes"),
    ):
        assert main(["fdgjax", *argv]) == 2
        said = capsys.readouterr().err
        assert re.search(words, said), said
        assert said.count("\n") == 1
