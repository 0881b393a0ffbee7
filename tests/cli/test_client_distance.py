"""The models of a finished run compared: their distance, their means, and what they predict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.cli import client_distance
from fdgjax.inference.client_models import model_distance
from fdgjax.run.console import Console
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.checksums import read_checked_json
from tests.runs import built_once, never, perceptron, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


def finished(method: str, cache: Path, path: Path, **changes: Any) -> Path:
    run_config(small(cache, method, rounds=1, **changes), path, Console(), never())
    return path


@pytest.mark.slow
def test_models_have_the_accuracies_of_the_run(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished("hfedf", cache, tmp_path / "run")
    summary = read_checked_json(path / "summary.json")
    assert client_distance.main(["apart", str(path)]) == 0
    found, screen = read_checked_json(path / "apart.json"), capsys.readouterr().out
    models = found["models"]
    clients = [models.pop(f"client {i}") for i in range(5)]
    assert np.mean([one["id"] for one in clients]) == pytest.approx(summary["id_accuracy"])
    assert np.mean([one["ood"] for one in clients]) == pytest.approx(summary["ood_accuracy"])
    assert set(models) == {"mean of the models", "mean embedding"}
    labels = reopen(path).experiment.data
    target = labels.labels[labels.domains == labels.domain_names.index("r45")]
    majority = np.bincount(target).max() / len(target)
    assert found["target_majority"] == summary["target_majority"] == pytest.approx(majority)
    assert all(0.1 <= one["share"] <= 1 and one["most_predicted"] in labels.class_names for one in clients)
    assert found["distance"] > 0
    assert "models" in screen
    assert "mean embedding" in screen


@pytest.mark.slow
def test_one_model_for_all_is_no_distance_apart(cache: Path, tmp_path: Path) -> None:
    path = finished("fedavg", cache, tmp_path / "run", seeds=2, data={"protocol": "every_domain", "target": ""})
    assert client_distance.main(["apart", str(path)]) == 0
    found = read_checked_json(path / "apart.json")
    assert found["distance"] == 0
    assert "mean embedding" not in found["models"]
    assert not any("ood" in one for one in found["models"].values())
    assert found["target_majority"] is None
    first = read_checked_json(path / "seed_0/summary.json")
    clients = [found["models"][f"client {i}"]["id"] for i in range(6)]
    assert np.mean(clients) == pytest.approx(first["id_accuracy"])


def test_the_distance_is_relative_to_the_models_size() -> None:
    vectors = ([3.0, 4.0], [3.0, 4.0], [3.0, 9.0])
    models = [{"params": {"w": np.array(vector)}} for vector in vectors]
    expected = (0 + 5 + 5) / 3 / np.mean([5, 5, 90**0.5])
    assert model_distance(models) == pytest.approx(expected)
    larger = [{"params": {"w": 7 * model["params"]["w"]}} for model in models]
    assert model_distance(larger) == pytest.approx(expected)


@pytest.mark.slow
def test_a_run_without_classifiers_is_one_line(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished("central", cache, tmp_path / "run")
    assert client_distance.main(["apart", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is a run of 'central'; expected one whose clients have models that classify" in line
