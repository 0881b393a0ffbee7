"""Predictions of a trained run: from files, and by what is exported, which JAX runs alone."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from fdgjax.cli import export, predict
from fdgjax.inference.classifier import open_classifier
from fdgjax.inference.exporting import NAMES
from fdgjax.inference.temperature import fit_temperature, nll
from fdgjax.run.console import Console
from fdgjax.run.runner import run_config
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]

ALONE = """
import sys, json, numpy as np, jax
program = jax.export.deserialize(bytearray(open("program.bin", "rb").read()))
print(json.dumps(np.asarray(program.call(np.load("images.npy"))).tolist()))
assert not [name for name in sys.modules if name.startswith(("fdgjax", "flax"))]
"""


@pytest.fixture(scope="module")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Path:
    """A run of LG-FedAvg, whose clients have models of their own, and several for an unseen domain."""
    path = tmp_path_factory.mktemp("trained") / "run"
    run_config(small(cache, "lgfedavg", rounds=2), path, Console(), never())
    return path


@pytest.fixture
def files(trained: Path, tmp_path: Path) -> list[Path]:
    images = open_classifier(trained).experiment.data.images
    found = [tmp_path / f"{i}.png" for i in (0, 700)]
    for file, i in zip(found, (0, 700), strict=True):
        Image.fromarray(np.asarray(images[i])[..., 0]).save(file)
    return found


def table(text: str) -> np.ndarray:
    return np.array([[float(cell) for cell in row[2:]] for row in list(csv.reader(text.splitlines()))[1:]])


def test_images_have_a_class_and_probabilities(
    trained: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(trained), *map(str, files)]
    assert predict.main(["predict", *words]) == 0
    unseen = capsys.readouterr().out
    header, *rows = csv.reader(unseen.splitlines())
    assert header == ["file", "class", *(f"p({digit})" for digit in range(10))]
    assert [row[0] for row in rows] == list(map(str, files))
    np.testing.assert_allclose(table(unseen).sum(axis=1), 1, atol=1e-5)
    assert [int(row[1]) for row in rows] == table(unseen).argmax(axis=1).tolist()
    own = []
    for client in range(5):
        assert predict.main(["predict", *words, "--client", str(client)]) == 0
        own.append(table(capsys.readouterr().out))
    assert not np.allclose(own[0], own[1], atol=1e-3)
    np.testing.assert_allclose(np.mean(own, axis=0), table(unseen), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("choice", [(), ("--client", "1", "--calibrated")])
def test_the_exported_program_predicts_the_same_without_this_package(
    choice: tuple[str, ...], trained: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main(["predict", str(trained), *map(str, files), *choice]) == 0
    expected = table(capsys.readouterr().out)
    out = tmp_path / "taken"
    assert export.main(["export", str(trained), "--out", str(out), *choice]) == 0
    np.save(out / "images.npy", np.stack([np.asarray(Image.open(file))[..., None] for file in files]))
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=2e-6)
    plain = (out / "images.npy").stat().st_mode
    assert {(out / name).stat().st_mode for name in NAMES} == {plain}
    card, facts = (out / "README.md").read_text(), json.loads((out / "model.json").read_text())
    assert "must not be used for" in card
    assert "unseen domain `r45`" in card
    assert facts["classes"] == [str(digit) for digit in range(10)]
    with safe_open(out / "model.safetensors", "numpy") as tensors:
        assert json.loads(tensors.metadata()["classes"]) == facts["classes"]
        assert any(name.endswith("params/linear_2/kernel") for name in tensors.keys())  # noqa: SIM118


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client", "7"], "--client got 7; expected a number from 0 to 4"),
        (["--seed", "3"], "--seed got 3; expected one of the run's seeds, 0 to 0"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, trained: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main(["predict", str(trained), str(files[0]), *words]) == 2
    assert said in capsys.readouterr().err
    files[0].write_text("no image")
    assert predict.main(["predict", str(trained), str(files[0])]) == 2
    assert f"cannot decode the image {files[0]}" in capsys.readouterr().err


def test_an_export_leaves_other_files_alone(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert export.main(["export", str(trained), "--out", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_temperature_of_labels_drawn_from_the_model_is_found() -> None:
    draw = np.random.default_rng(0)
    logits = 3 * draw.normal(size=(1, 20_000, 5))
    p = np.exp(logits[0] / 2.5)
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) > draw.random((20_000, 1))).argmax(axis=1)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(2.5, rel=0.05)
    assert nll(logits, labels, found) <= min(nll(logits, labels, found * factor) for factor in (0.9, 1.1))
