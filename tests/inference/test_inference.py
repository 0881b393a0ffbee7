"""Predictions of a trained run: from files, and by what is exported, which JAX runs alone."""

import csv
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

import chex
import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from fdgjax.cli import export, predict
from fdgjax.experiments import build, describe, make_outline, to_description
from fdgjax.inference.classifier import open_classifier
from fdgjax.inference.exporting import NAMES
from fdgjax.inference.images import decoded_images, images_at, images_below
from fdgjax.inference.model_card import card_of
from fdgjax.inference.temperature import fit_temperature, nll
from fdgjax.methods import METHODS
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import Console
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
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
    images = reopen(trained).experiment.data.inputs
    found = [tmp_path / f"{i}.png" for i in (0, 700)]
    for file, i in zip(found, (0, 700), strict=True):
        Image.fromarray(np.asarray(images[i])[..., 0]).save(file)
    return found


def table(text: str) -> np.ndarray:
    return np.array([[float(cell) for cell in row[2:]] for row in list(csv.reader(text.splitlines()))[1:]])


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
    assert "converts to grey; EXIF's orientation is ignored" in " ".join(card.split())
    assert "unseen domain `r45`" in card
    assert facts["classes"] == [str(digit) for digit in range(10)]
    with safe_open(out / "model.safetensors", "numpy") as tensors:
        assert json.loads(tensors.metadata()["classes"]) == facts["classes"]
        assert any(name.endswith("params/linear_2/kernel") for name in tensors.keys())  # noqa: SIM118


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "model"
    assert export.main(["export", str(trained), "--out", str(out), "--client", "1"]) == 0
    return out


@pytest.mark.slow
def test_an_export_predicts_what_the_run_predicts(
    trained: Path, exported: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main(["predict", str(trained), *map(str, files), "--client", "1"]) == 0
    expected = capsys.readouterr().out
    assert predict.main(["predict", str(exported), *map(str, files)]) == 0
    found = capsys.readouterr().out
    np.testing.assert_allclose(table(found), table(expected), atol=2e-6)
    assert found.splitlines()[0] == expected.splitlines()[0]


@pytest.mark.slow
def test_mistakes_about_an_export_are_one_line(
    exported: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main(["predict", str(exported), str(files[0]), "--round", "last"]) == 2
    assert "is an export, which holds a single model" in capsys.readouterr().err
    assert predict.main(["predict", str(tmp_path), str(files[0])]) == 2
    assert "is neither the folder of a run" in capsys.readouterr().err
    for name in ("model.json", "program.bin"):
        shutil.copytree(exported, tmp_path / name)
        (tmp_path / name / name).write_bytes(b"{}")
        assert predict.main(["predict", str(tmp_path / name), str(files[0])]) == 2
        assert f"the export {tmp_path / name} is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_the_selected_round_leaves_the_house(cache: Path, perceptron: None, tmp_path: Path) -> None:
    # From round 4 on a hostile client turns what the others learn into its opposite.
    attack = {"kind": "sign_flip", "clients": 1, "strength": 10.0, "from_round": 4}
    config = small(cache, rounds=7, eval_every=1, checkpoint_every=7, selection="validation", attack=attack)
    config = dataclasses.replace(config, method=dataclasses.replace(config.method, client_learning_rate=0.01))
    summary = run_config(config, tmp_path / "run", Console(), never())
    chosen = summary["selection"]["validation"]["round"]
    assert chosen < 7, "the rule chooses the last round: the test sees nothing"
    for words, round_ in (((), chosen), (("--round", "last"), 7)):
        out = tmp_path / f"of_{round_}"
        assert export.main(["export", str(tmp_path / "run"), "--out", str(out), *words]) == 0
        assert json.loads((out / "model.json").read_text())["round"] == round_
        card = (out / "README.md").read_text()
        assert f"after round {round_} of 7" in card
        assert f"Measured after round {round_}." in card
        assert ("is not the one that the run's rule `validation` chooses" in card) == (round_ == 7)
        (id_accuracy,) = [line for line in card.splitlines() if "`id_accuracy`" in line]
        if round_ == chosen:
            assert f"{summary['id_accuracy']:.3f}" in id_accuracy


@pytest.mark.slow
def test_a_card_states_the_figures_of_the_model_it_lies_beside(trained: Path, exported: Path, tmp_path: Path) -> None:
    """Of one client's model that client's own; of several averaged ones it says that theirs are others."""
    record = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()][-1]
    card = (exported / "README.md").read_text()
    assert f"| accuracy (`client_accuracy`) | {record['client_accuracy']['1']:.3f} |" in card
    assert "ood" not in card.partition("| figure |")[2].partition("\n\n")[0]
    assert export.main(["export", str(trained), "--out", str(tmp_path / "unseen")]) == 0
    card = (tmp_path / "unseen" / "README.md").read_text()
    assert f"(`ood_accuracy`) | {record['ood_accuracy']:.3f} |" in card
    assert "The run measured its 5 models one by one" in card


@pytest.mark.slow
def test_an_export_that_was_not_finished_is_none_and_another_ones_program_is_found(
    trained: Path, exported: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(exported, out := tmp_path / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgjax.inference.exporting.write_tensors", fails)
        assert export.main(["export", str(trained), "--out", str(out)]) == 2
    assert predict.main(["predict", str(out), str(files[0])]) == 2
    assert "neither the folder of a run" in capsys.readouterr().err
    shutil.copy(exported / "model.json", out)
    assert predict.main(["predict", str(out), str(files[0])]) == 2
    assert "program.bin is not the program of model.json" in capsys.readouterr().err
    facts = json.loads((exported / "model.json").read_text())
    facts = {key: value for key, value in facts.items() if key != "program_sha256"} | {"classes": ["a", "b"]}
    (out / "model.json").write_text(json.dumps(facts))
    assert predict.main(["predict", str(out), str(files[0])]) == 2
    assert "maps (8, 8, 1) to (10,), model.json says (8, 8, 1) to (2,)" in capsys.readouterr().err


def fails(*_: object) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("0.png", "is one of the samples"),
        ("run/config.json", "would lie among the records"),
        ("nowhere/x.csv", "lies in a folder that does not exist"),
    ],
)
def test_predictions_replace_nothing_that_they_are_made_from(
    out: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    for name in ("0.png", "run/config.json"):
        (tmp_path / name).write_text("as it was")
    for given in ("0.png", "."):
        words = ["predict", str(tmp_path / "run"), str(tmp_path / given), "--out", str(tmp_path / out)]
        assert predict.main(words) == 2
        assert said in capsys.readouterr().err
    assert {(tmp_path / name).read_text() for name in ("0.png", "run/config.json")} == {"as it was"}


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
def test_the_card_names_the_weights_that_the_model_starts_from(trained: Path) -> None:
    classifier = open_classifier(trained)
    config = classifier.outline.config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, pretrained="tuned.pth"))
    started = dataclasses.replace(classifier.trained, outline=classifier.outline._replace(config=config))
    card = card_of(classifier._replace(trained=started), finished=True)
    assert "- Starts from `tuned.pth` (licence: see its source).\n" in card
    assert "Starts from" not in card_of(classifier, finished=True)


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
