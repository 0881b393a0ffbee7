"""An export predicts what its run predicts, without this package, and is whole or none."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save_file

from fdgjax.cli import export, predict
from fdgjax.config import Config, to_plain
from fdgjax.inference.classifier import open_classifier
from fdgjax.inference.exporting import NAMES, check_same
from fdgjax.inference.model_card import card_of, figures_of
from fdgjax.run.console import Console
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
from tests.inference.trained import files, table, trained
from tests.runs import never, perceptron, small

__all__ = ["files", "perceptron", "trained"]

OWN = ("--client", "1")
"""The model of which `exported` is the export."""
ALONE = """
import sys, json, numpy as np, jax
program = jax.export.deserialize(bytearray(open("program.bin", "rb").read()))
print(json.dumps(np.asarray(program.call(np.load("images.npy"))).tolist()))
assert not [name for name in sys.modules if name.startswith(("fdgjax", "flax"))]
"""


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


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "model"
    assert export.main(["export", str(trained), "--out", str(out), *OWN]) == 0
    return out


@pytest.mark.slow
def test_an_export_predicts_what_the_run_predicts(
    trained: Path,
    exported: Path,
    files: list[Path],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert predict.main(["predict", str(trained), *map(str, files), "--client", "1"]) == 0
    expected = capsys.readouterr().out
    assert "they are left out; --coverage measures it on the run's data" in caplog.text
    caplog.clear()
    assert predict.main(["predict", str(exported), *map(str, files)]) == 0
    assert "they are left out; an export of a run has sets if it is made with fdgjax export --guarded" in caplog.text
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
        said = f"is not the one that the run's rule `validation` chooses: that is round {chosen}."
        assert (said in card) == (round_ == 7)
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
    (out / ".program.bin.0123").write_bytes(b"left by a kill")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgjax.inference.exporting.write_tensors", fails)
        assert export.main(["export", str(trained), "--out", str(out), *OWN]) == 2
    assert not (out / ".program.bin.0123").exists(), "a kill's leftover is no reason to refuse, and goes"
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


@pytest.mark.slow
def test_an_export_of_another_model_stays(
    trained: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(exported, out := tmp_path / "out")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert export.main(["export", str(trained), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "has the export of another model (model_of=client 1 there, unseen domains here); expected a new" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    (out / "README.md").unlink()
    assert export.main(["export", str(trained), "--out", str(out), *OWN]) == 0
    assert (out / "README.md").read_bytes() == before["README.md"]


def test_an_export_is_compared_by_its_settings_where_it_says_them(tmp_path: Path) -> None:
    """One of before a key existed is of the same model; one that says nothing of its settings is of another."""
    plain = to_plain(Config())
    words = {"method": "fedavg", "config": json.dumps(plain)}
    earlier = json.dumps({key: value for key, value in plain.items() if key != "figures_threshold"})
    (tmp_path / "model.json").touch()
    for held, differs in (({**words, "config": earlier}, False), ({"method": "fedavg"}, True), ({}, True)):
        save_file({"a": np.zeros(1)}, tmp_path / "model.safetensors", held)
        with pytest.raises(UserError, match="of another model") if differs else contextlib.nullcontext():
            check_same(tmp_path, words)


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


@pytest.mark.slow
def test_the_card_names_the_weights_that_the_model_starts_from(trained: Path) -> None:
    classifier = open_classifier(trained)
    config = classifier.outline.config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, pretrained="tuned.pth"))
    started = dataclasses.replace(classifier.trained, outline=classifier.outline._replace(config=config))
    card = card_of(classifier._replace(trained=started), finished=True)
    assert "- Starts from `tuned.pth` (licence: see its source).\n" in card
    assert "Starts from" not in card_of(classifier, finished=True)


def test_a_name_with_a_bar_is_one_cell_of_a_cards_table() -> None:
    record = {"round": 2, "per_domain_accuracy": {"left|right": 0.5, "plain": 0.25}}
    lines = [line for line in figures_of(record).splitlines() if line.startswith("|")]
    assert [line.count("|") for line in lines] == [3, 3, 3, 3]
