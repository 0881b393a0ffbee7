"""`fdgjax predict --adapt` predicts what the run's own test after adaptation counts."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.cli import predict
from fdgjax.run.console import Console
from fdgjax.run.reopen import rebuilt
from fdgjax.run.runner import run_config
from tests.runs import never, perceptron, small

pytestmark = pytest.mark.slow

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Path:
    path = tmp_path_factory.mktemp("adapted") / "run"
    run_config(small(cache, rounds=2, adaptation={"kind": "t3a"}), path, Console(), never())
    return path


def test_adapted_predictions_of_the_unseen_domain_are_the_recorded_accuracy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = rebuilt(run)
    data, rows = experiment.data, experiment.parts[0].target
    (tmp_path / "new").mkdir()
    for row in rows:
        Image.fromarray(np.asarray(data.inputs[row])[..., 0]).save(tmp_path / f"new/{row:05}.png")

    def accuracy(*words: str) -> float:
        assert predict.main(["predict", str(run), str(tmp_path / "new"), *words]) == 0
        found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
        assert len(found) == len(rows)
        true = [data.class_names[data.labels[int(Path(one["file"]).stem)]] for one in found]
        return float(np.mean([one["class"] == name for one, name in zip(found, true, strict=True)]))

    recorded = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert accuracy() == pytest.approx(recorded["ood_accuracy"])
    assert accuracy("--adapt") == pytest.approx(recorded["ood_adapted_accuracy"])
    assert recorded["ood_adapted_accuracy"] != recorded["ood_accuracy"]
    assert accuracy("--adapt", "shot") not in (accuracy(), accuracy("--adapt"))


def test_what_cannot_be_adapted_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = str(tmp_path / "one.png")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(image)
    for words, said in (
        (["--adapt", "tent"], "adapts BatchNorm"),
        (["--adapt", "none"], "--adapt got no adaptation"),
        (["--adapt", "magic"], "magic"),
        (["--adapt", "--coverage", "0.9"], "one without the other"),
    ):
        assert predict.main(["predict", str(run), image, *words]) == 2
        assert said in capsys.readouterr().err
    assert predict.main(["predict", str(tmp_path), image, "--adapt"]) == 2
    assert "no run's folder" in capsys.readouterr().err
