"""When not to trust a prediction: what a run keeps says the same without its data, and is set by no unseen label."""

import csv
import itertools
import json
import shutil
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
import pytest
from PIL import Image

from fdgjax.cli import export, predict
from fdgjax.experiments import Experiment
from fdgjax.inference.left_out import keep_left_out, mean_of, read_left_out
from fdgjax.inference.safeguards import Safeguards, keep_safeguards, read_safeguards, safeguards_of
from fdgjax.inference.trained_run import trained_seed
from fdgjax.run.console import Console
from fdgjax.run.reopen import rebuilt
from fdgjax.run.runner import run_config
from fdgjax.utils.errors import UserError
from tests.runs import never, perceptron, small

__all__ = ["perceptron"]


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory, perceptron: None) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "run"
    run_config(small(cache, rounds=2), path, Console(), never(), keep_safeguards)
    return path


@pytest.fixture(scope="module")
def images(run: Path) -> list[str]:
    data, found = rebuilt(run).data, []
    for i in range(0, 700, 35):
        found.append(str(run.parent / f"{i}.png"))
        Image.fromarray(np.asarray(data.inputs[i])[..., 0]).save(found[-1])
    return found


def column(text: str, name: str) -> list[str]:
    return [row[name] for row in csv.DictReader(text.splitlines())]


@pytest.mark.slow
def test_a_run_predicts_sets_and_distances_without_its_data(
    run: Path,
    images: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(run, bare)
    (bare / "safeguards.npz").unlink()
    assert predict.main(["predict", str(bare), *images]) == 0
    plain = capsys.readouterr().out
    assert "set" not in plain.partition("\n")[0].split(",")
    # Without what was kept it is measured on the data, if it is asked for.
    assert predict.main(["predict", str(bare), *images, "--coverage", "0.9"]) == 0
    measured = capsys.readouterr().out

    def gone(name: str, **places: Any) -> NoReturn:
        raise UserError(f"no folder of {name}")

    monkeypatch.setattr("fdgjax.experiments.chosen_data.load_data", gone)

    def predicted(*words: str) -> str:
        assert predict.main(["predict", str(run), *images, *words]) == 0
        return capsys.readouterr().out

    assert predicted() == measured
    assert [line.rsplit(",", 2)[0] for line in measured.splitlines()] == plain.splitlines()
    assert column(predicted("--calibrated"), "set") != [""] * len(images)
    few, many = (column(predicted("--coverage", share), "set") for share in ("0.5", "0.95"))
    assert all(set(a.split("|")) <= {*b.split("|"), ""} for a, b in zip(few, many, strict=True))
    refused = [column(predicted("--refuse-above", at), "refused") for at in ("99%", "50%", "0.1")]
    for fewer, more in itertools.pairwise(refused):
        assert all(b == "yes" for a, b in zip(fewer, more, strict=True) if a == "yes")
    assert set(refused[1]) == {"yes", "no"}
    assert set(refused[2]) == {"yes"}


@pytest.mark.slow
def test_mistakes_are_one_line(
    run: Path, images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export.main(["export", str(run), "--out", str(tmp_path / "model")]) == 0
    card = (tmp_path / "model/README.md").read_text()
    assert "of the unseen domain `r45` | 299 |" in card
    assert set(json.loads((tmp_path / "model/model.json").read_text())["set_quantiles"]) >= {"0.9", "0.95"}
    capsys.readouterr()
    assert predict.main(["predict", str(run), *images]) == 0
    expected = column(capsys.readouterr().out, "set")
    assert predict.main(["predict", str(tmp_path / "model"), *images]) == 0
    assert column(capsys.readouterr().out, "set") == expected
    assert predict.main(["predict", str(run), images[0], "--refuse-above", "99.99%"]) == 2
    assert "held-out samples are too few; expected at most 99%, or a distance" in capsys.readouterr().err
    for words, said in (
        (["--coverage", "0.93"], "this export has sets for 0.8, 0.9, 0.95, 0.99"),
        (["--refuse-above", "95%"], "computes no distances"),
    ):
        assert predict.main(["predict", str(tmp_path / "model"), images[0], *words]) == 2
        assert said in capsys.readouterr().err
    for words in (["--coverage", "90"], ["--refuse-above", "120%"], ["--refuse-above", "-1"]):
        with pytest.raises(SystemExit, match="2"):
            predict.main(["predict", str(run), images[0], *words])
        assert "expected a" in capsys.readouterr().err


def measured(experiment: Experiment, run: Path) -> Safeguards:
    trained = trained_seed(experiment, run, 0)
    return safeguards_of(trained, trained.unseen_variables())


@pytest.mark.slow
def test_labels_of_the_unseen_domain_set_nothing(run: Path) -> None:
    experiment = rebuilt(run)
    labels = experiment.data.labels.copy()
    target = experiment.parts[0].target
    labels[target] = (labels[target] + 1) % 10
    true = measured(experiment, run)
    false = measured(experiment._replace(data=experiment.data._replace(labels=labels)), run)
    assert true.figures["plain"]["unseen"] != false.figures["plain"]["unseen"]
    assert true.figures["plain"]["own"] == false.figures["plain"]["own"]
    jax.tree.map(np.testing.assert_array_equal, true._replace(figures={}), false._replace(figures={}))


@pytest.mark.slow
def test_left_out_domains_are_those_of_runs_that_did_not_see_them(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a run on all domains, which a choice trained: the card has what the others' safeguards found there."""
    everywhere = tmp_path / "run"
    shutil.copytree(run, everywhere)
    keep_left_out(everywhere, {"r45": run, "r0": run})
    kept, guards = read_left_out(everywhere), read_safeguards(run / "safeguards.npz", 2)
    assert guards is not None
    for name, kind in itertools.product(("r45", "r0"), ("plain", "calibrated")):
        wanted = guards.figures[kind]["unseen"]
        assert kept[name][kind] == {key: pytest.approx(value) for key, value in wanted.items()}
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(run / "summary.json", bare)
    keep_left_out(everywhere, {"r45": bare, "r0": bare})
    assert read_left_out(everywhere) == kept, "what is kept of a run is not measured again"
    (bare / "summary.json").write_text("{}")
    with pytest.raises(UserError):  # of another one it is
        keep_left_out(everywhere, {"r45": bare, "r0": bare})
    assert export.main(["export", str(everywhere), "--out", str(tmp_path / "model")]) == 0
    card = (tmp_path / "model/README.md").read_text()
    coverage = kept["r45"]["plain"]["coverage"]
    assert coverage is not None
    assert f"| of `r45`, while it was left out | 299 | {coverage:.3f} |" in card
    assert f"to have a coverage between {100 * coverage:.0f} and {100 * coverage:.0f} %" in card
    assert export.main(["export", str(everywhere), "--client", "0", "--out", str(tmp_path / "client")]) == 0
    assert "left out |" not in (tmp_path / "client/README.md").read_text()
    (everywhere / "left_out.json").write_text("{}")
    assert read_left_out(everywhere) == {}
    assert "is damaged" in caplog.text


def test_a_mean_over_seeds_is_of_those_that_have_the_figure() -> None:
    assert mean_of([{"a": 0.2, "b": None, "c": None}, {"a": 0.4, "b": 0.5, "c": None}]) == {
        "a": pytest.approx(0.3),
        "b": 0.5,
        "c": None,
    }


@pytest.mark.slow
def test_a_damaged_file_is_named_and_left_out(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = bytearray((run / "safeguards.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "broken.npz").write_bytes(content)
    assert read_safeguards(tmp_path / "broken.npz", 2) is None
    assert "broken.npz is damaged" in caplog.text
    assert read_safeguards(run / "safeguards.npz", 1) is None, "it is of another round"
    assert read_safeguards(run / "safeguards.npz", 2) is not None
