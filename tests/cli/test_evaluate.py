"""Figures of a folder of labelled images, by a run or an export, beside the run's own and independent ones."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdgjax.cli import evaluate, export
from fdgjax.config import make_config
from fdgjax.data.sources.domains import Domains
from fdgjax.experiments import DataDescription, from_description
from fdgjax.inference.class_figures import class_figures, share
from fdgjax.inference.labelled_folder import LabelledImage, labelled_images
from fdgjax.run.console import Console
from fdgjax.run.records import Workdir
from fdgjax.run.reopen import reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.checksums import write_checked_json
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    run_config(small(cache, rounds=2), path, Console(), never())
    return path


@pytest.fixture(scope="module")
def labelled(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unseen domain and 20 images of another, as `<domain>/<class>/*`."""
    data, root = reopen(trained).experiment.data, tmp_path_factory.mktemp("labelled")
    for name, most in (("r45", 10**6), ("r0", 20)):
        write(data, np.flatnonzero(data.domains == data.domain_names.index(name))[:most], root / name)
    return root


def write(data: Domains, rows: np.ndarray, folder: Path) -> None:
    for row in rows:
        of_class = folder / data.class_names[data.labels[row]]
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(data.inputs[row])[..., 0]).save(of_class / f"{row}.png")


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_the_unseen_domain_has_the_accuracy_of_the_record(
    trained: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, before = tmp_path / "found.json", times(trained)
    words = ["evaluate", str(trained), "--data", str(labelled), "--json", str(out), "--csv", str(tmp_path / "f.csv")]
    assert evaluate.main(words) == 0
    found = json.loads(out.read_text())
    summary = json.loads((trained / "summary.json").read_text())
    assert found["domains"]["r45"]["value"] == pytest.approx(summary["ood_accuracy"], abs=1e-6)
    assert found["domains"]["r0"]["n"] == 20
    assert found["n"] == sum(map(sum, found["confusion"])) == sum(one["n"] for one in found["domains"].values())
    assert found["skipped"] == []
    assert found["model"]["method"] == "fedavg"
    header, *rows = csv.reader((tmp_path / "f.csv").read_text().splitlines())
    assert [list(map(int, row[-10:])) for row in rows] == found["confusion"]
    assert header[:4] == ["class", "n", "predicted", "recall"]
    said = capsys.readouterr().out
    assert f"accuracy {found['accuracy']:.3f}" in said
    assert "true \\ predicted" in said
    assert times(trained) == before


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        (
            "a",
            "data",
            "has samples that the run was trained on, whose figures flatter it; the domain that it has not seen is 'a'",
        ),
        ("a", "data/b/cat", "has samples that the run was trained on"),
        ("a", ".", "has samples that the run was trained on"),
        ("a", "data/a", ""),
        ("a", "data/a.csv", ""),
        ("a", "data/folder/a/cat", ""),
        ("a", "data/out/dog", ""),
        ("", "data/a", "whose figures flatter it"),
        ("a", "elsewhere", ""),
    ],
)
def test_samples_of_the_training_are_said(
    target: str, given: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("fedavg", "folder")
    config.data.dir, config.data.target, config.data.excluded = str(tmp_path / "data"), target, "out"
    write_checked_json(Workdir(tmp_path).config, {"config": config.to_dict(), "versions": {}})
    evaluate.warn_of_training_data(tmp_path, tmp_path / given)
    assert words in caplog.text
    assert bool(words) == bool(caplog.text)


@pytest.mark.parametrize("shots", [0, 2])
def test_the_first_domain_is_unseen_where_none_is_named_unless_it_gave_shots(
    shots: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("fedavg", "folder")
    config.data.dir, config.data.shots, config.data.target = str(tmp_path / "data"), shots, "a" * bool(shots)
    write_checked_json(Workdir(tmp_path).config, {"config": config.to_dict(), "versions": {}})
    begun = DataDescription(("cat", "dog"), ("a", "b"), "a", (4, 4, 3), 1, (8, 4, 4, 3), {})
    write_checked_json(Workdir(tmp_path).data, from_description(begun))
    evaluate.warn_of_training_data(tmp_path, tmp_path / "data/a")
    assert bool(caplog.text) == bool(shots)


def test_a_hospitals_own_file_is_the_unseen_domain_by_whatever_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("fedavg", "heart_disease")
    config.data.dir, config.data.target = str(tmp_path), "hungary"
    for name in ("processed.cleveland.data", "reprocessed.hungarian.data", "processed.switzerland.data", "va.csv"):
        (tmp_path / name).touch()
    write_checked_json(Workdir(tmp_path).config, {"config": config.to_dict(), "versions": {}})
    evaluate.warn_of_training_data(tmp_path, tmp_path / "reprocessed.hungarian.data")
    assert not caplog.text
    evaluate.warn_of_training_data(tmp_path, tmp_path / "va.csv")
    assert "trained on" in caplog.text


@pytest.mark.slow
def test_one_domain_and_an_export_give_the_same(trained: Path, labelled: Path, tmp_path: Path) -> None:
    assert export.main(["export", str(trained), "--out", str(tmp_path / "model")]) == 0
    found = []
    for model in (trained, tmp_path / "model"):
        assert evaluate.main(["evaluate", str(model), "--data", f"{labelled}/r0", "--json", f"{tmp_path}/0.json"]) == 0
        found.append(json.loads((tmp_path / "0.json").read_text()))
    assert found[0]["confusion"] == found[1]["confusion"]
    assert found[0]["domains"] == {}
    assert found[0]["n"] == 20


@pytest.mark.slow
def test_mistakes_are_one_line(
    trained: Path, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "zebra").mkdir()
    for words, said in (
        (["--data", str(tmp_path)], "has no folder of a class that the model knows"),
        (["--data", str(tmp_path / "none")], "which is no folder"),
        (["--data", str(labelled), "--json", str(trained / "summary.json")], "would lie among the records"),
        (
            ["--data", str(labelled), *(f"--{kind}={tmp_path / 'same'}" for kind in ("json", "csv"))],
            "expected two files",
        ),
    ):
        assert evaluate.main(["evaluate", str(trained), *words]) == 2
        assert said in (line := capsys.readouterr().err)
        assert line.count("\n") == 1
    (tmp_path / "3").mkdir()
    assert evaluate.main(["evaluate", str(trained), "--data", str(tmp_path)]) == 2
    assert "classes that the model does not know: zebra" in capsys.readouterr().err


def test_an_image_that_cannot_be_read_is_counted_and_named(
    trained: Path, labelled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data/3").mkdir(parents=True)
    (tmp_path / "data/3/broken.png").write_text("no image")
    Image.new("L", (8, 8)).save(tmp_path / "data/3/black.png")
    words = ["--data", str(tmp_path / "data"), "--json", str(tmp_path / "found.json")]
    assert evaluate.main(["evaluate", str(trained), *words]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["n"] == 1
    assert found["skipped"] == [f"{tmp_path}/data/3/broken.png"]
    assert "broken.png (UnidentifiedImageError)" in caplog.text


@pytest.mark.parametrize("domain", ["", "site"])
def test_images_outside_class_folders_are_counted_in_one_line(
    domain: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / domain
    (root / "3").mkdir(parents=True)
    for name in ("3/in.png", "out.png", "notes.txt"):
        (root / name).touch()
    (tmp_path / "further.jpg").touch()
    with caplog.at_level("INFO", "fdgjax"):
        (found,) = labelled_images(tmp_path, ["2", "3"], "folder")
    assert found == LabelledImage(root / "3/in.png", 1, domain)
    (line,) = caplog.messages
    assert "images outside class folders: 2 (further.jpg and 1 more)" in line
    assert "files that are not images: 1" in line


def test_wilsons_interval_is_the_published_one() -> None:
    """Newcombe (1998), Table I, method 3, without continuity correction."""
    for right, n, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611)):
        every = np.ones(n, bool)
        assert share(np.arange(n) < right, every, None).interval == pytest.approx((low, high), abs=5e-5)
        # Of samples of one group that are alike, each group counts once.
        times = [np.repeat(each, 3) for each in (np.arange(n) < right, every, np.arange(n))]
        assert share(*times).interval == pytest.approx((low, high), abs=5e-5)
    assert share(every, ~every, None) == (0, None, None)


def test_figures_of_classes_are_those_counted_by_hand() -> None:
    true, predicted = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    found = class_figures(true, predicted, ("a", "b", "c", "d"), [""] * 6)
    assert found.confusion.tolist() == [[2, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert [one.recall.value for one in found.classes] == [2 / 3, 1 / 3, None, None]
    assert [one.precision.value for one in found.classes] == [1, 1 / 2, 0, None]
    assert [one.f1 for one in found.classes] == [pytest.approx(0.8), pytest.approx(0.4), 0, None]
    # Means over the classes that have images.
    assert found.macro == pytest.approx({"precision": 3 / 4, "recall": 1 / 2, "f1": 0.6})
    assert found.accuracy.value == 1 / 2
