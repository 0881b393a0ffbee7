"""Predictions of a trained run: from files, and by what is exported, which JAX runs alone."""

import csv
import dataclasses
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NoReturn

import chex
import numpy as np
import pytest
from PIL import Image

from fdgjax.cli import export, predict
from fdgjax.experiments import build, describe, make_outline, to_description
from fdgjax.inference.images import decoded_images, images_at, images_below
from fdgjax.inference.temperature import fit_temperature, nll
from fdgjax.methods import METHODS
from fdgjax.run.compilation import state_shapes
from fdgjax.utils.errors import UserError
from tests.inference.trained import files, table, trained
from tests.runs import perceptron, small

__all__ = ["files", "perceptron", "trained"]


@pytest.mark.slow
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
    assert predict.main(["predict", *words, "--client", "r30"]) == 0
    np.testing.assert_array_equal(table(capsys.readouterr().out), own[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client", "7"], "--client got 7; expected a number from 0 to 4, or one of r0, r15, r30, r60, r75"),
        (["--client", "r45"], "--client got r45; expected a number"),
        (["--client", "-1"], "--client got -1; expected a number"),
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


@pytest.mark.slow
def test_without_the_data_the_predictions_are_the_same(
    trained: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(trained), *map(str, files), "--client", "2"]
    (trained / "data.json").rename(trained / "aside.json")  # an earlier version's run, which reads the data
    assert predict.main(words) == 0
    expected = capsys.readouterr().out
    (trained / "aside.json").rename(trained / "data.json")

    def gone(name: str, **places: Any) -> NoReturn:
        raise UserError(f"no folder of {name}")

    monkeypatch.setattr("fdgjax.experiments.chosen_data.load_data", gone)
    assert predict.main(words) == 0
    assert capsys.readouterr().out == expected
    assert predict.main([*words, "--calibrated"]) == 2
    assert "no folder of rotated_digits" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_methods_state_is_restored_without_data(name: str, cache: Path) -> None:
    experiment = build(small(cache, name, "digits_cnn", seeds=2))
    outline = make_outline(experiment.config, to_description(json.loads(json.dumps(describe(experiment)._asdict()))))
    chex.assert_trees_all_equal_shapes_and_dtypes(state_shapes(outline), state_shapes(experiment))


@pytest.mark.slow
def test_a_state_is_restored_without_data(cache: Path, perceptron: None) -> None:
    uneven = {"clients": 4, "domains_per_client": 2, "shots": 1}
    frozen = small(cache, "fedavg", "digits_cnn")
    for config in (
        small(cache, "hfedf"),
        small(cache, "hfedf", seeds=2, data=uneven),
        small(cache, "fedavg", data={"protocol": "labelled_server"}),
        dataclasses.replace(frozen, model=dataclasses.replace(frozen.model, frozen=1)),
    ):
        experiment = build(config)
        described = to_description(json.loads(json.dumps(describe(experiment)._asdict())))
        assert described == describe(experiment)
        shapes = state_shapes(make_outline(experiment.config, described))
        chex.assert_trees_all_equal_shapes_and_dtypes(shapes, state_shapes(experiment))


@pytest.mark.slow
def test_folders_are_searched_and_what_cannot_be_read_is_named_and_skipped(
    trained: Path,
    files: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "photos"
    (folder / "deeper").mkdir(parents=True)
    shutil.copy(files[0], folder / "b.png")
    shutil.copy(files[1], folder / "deeper/a.png")
    assert predict.main(["predict", str(trained), str(folder / "b.png"), str(folder / "deeper/a.png")]) == 0
    expected = capsys.readouterr().out
    (folder / "broken.jpg").write_text("no image")
    (folder / "notes.txt").write_text("notes")
    assert predict.main(["predict", str(trained), str(folder), "--out", str(tmp_path / "found.csv")]) == 0
    assert (tmp_path / "found.csv").read_text() == expected
    assert capsys.readouterr().out == f"2 images in {tmp_path}/found.csv, 1 skipped\n"
    assert f"cannot decode the image {folder}/broken.jpg" in caplog.text
    assert "files that are not images: 1 (notes.txt)" in caplog.text
    for words, said in (
        ([folder / "none"], "does not exist"),
        ([folder / "broken.jpg"], "cannot decode the image"),
        ([trained], "no images in"),
    ):
        assert predict.main(["predict", str(trained), *map(str, words)]) == 2
        assert said in (line := capsys.readouterr().err)
        assert "remove" not in line
    for path in (folder / "b.png", folder / "deeper/a.png"):
        path.unlink()
    assert predict.main(["predict", str(trained), str(folder)]) == 2
    assert "none of the 1 images can be read" in capsys.readouterr().err


def test_folders_that_are_linked_to_each_other_are_read_once_on_each_way(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "0.png")
        (tmp_path / name / f"to_{other}").symlink_to(tmp_path / other)
    found = [path.relative_to(tmp_path).as_posix() for path in images_below(tmp_path)]
    assert found == ["a/0.png", "a/to_b/0.png", "b/0.png", "b/to_a/0.png"]


def test_the_temperature_of_labels_drawn_from_the_model_is_found() -> None:
    draw = np.random.default_rng(0)
    logits = 3 * draw.normal(size=(1, 20_000, 5))
    p = np.exp(logits[0] / 2.5)
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) > draw.random((20_000, 1))).argmax(axis=1)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(2.5, rel=0.05)
    assert nll(logits, labels, found) <= min(nll(logits, labels, found * factor) for factor in (0.9, 1.1))


def test_a_temperature_that_the_samples_do_not_give_is_one() -> None:
    draw = np.random.default_rng(0)
    labels, logits = draw.integers(0, 3, 18), draw.normal(size=(1, 18, 3))
    right = logits.copy()
    right[0, np.arange(18), labels] += 6
    # All right: whatever T is, a smaller one has a smaller loss. Without a word on the class: no T is large enough.
    assert fit_temperature(right, labels) == 1
    wrong = np.eye(3)[(labels + 1) % 3][None]
    assert nll(wrong, labels, 50) < nll(wrong, labels, 40)
    assert fit_temperature(wrong, labels) == 1


@pytest.mark.slow
def test_a_temperature_that_cannot_be_fitted_is_said(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for fitted, words in ((1.0, "no temperature could be fitted to"), (1.5, "temperature 1.5000, fitted to")):
        monkeypatch.setattr("fdgjax.inference.classifier.fit_temperature", lambda logits, labels, t=fitted: t)
        out = tmp_path / str(fitted)
        assert export.main(["export", str(trained), "--out", str(out), "--client", "1", "--calibrated"]) == 0
        assert re.search(f"{words} \\d+ validation samples", (out / "README.md").read_text())
        assert ("no temperature can be fitted to" in caplog.text) == (fitted == 1)
        caplog.clear()


def test_pillow_prints_no_lines_of_its_own(tmp_path: Path) -> None:
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).convert("P")
    image.save(tmp_path / "palette.png", transparency=bytes([0, 100, 200]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((places, pixels),) = decoded_images((8, 8, 3), images_at([tmp_path / "palette.png"]))
    assert (places, pixels.shape) == ([0], (1, 8, 8, 3))


def test_images_without_upper_bits_are_counted_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deep = np.linspace(0, 2**16 - 1, 64).astype(np.uint16).reshape(8, 8)
    for name, shift in (("a", 0), ("b", 4), ("c", 4)):
        Image.fromarray(deep >> shift).save(tmp_path / f"{name}.png")
    _ = list(decoded_images((8, 8, 3), images_at([tmp_path])))
    (said,) = caplog.messages
    assert "no pixel of 2 of 3 images is brighter than 15 of 255" in said
    caplog.clear()
    _ = list(decoded_images((8, 8, 3), images_at([tmp_path / "a.png"])))
    assert not caplog.messages
