"""A finished run opened again: its state, other probes of it, and how far its domains are apart."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

from fdgjax.api.trainer import lending
from fdgjax.cli import probe, shift
from fdgjax.data.given_splits import Splits
from fdgjax.experiments import build
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import Console
from fdgjax.run.reopen import config_of, reopen
from fdgjax.run.runner import run_config
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from tests.runs import built_once, final_state, never, perceptron, small
from tests.toys import domains_of

pytestmark = pytest.mark.slow

__all__ = ["built_once", "perceptron"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, perceptron: None, built_once: None) -> Path:
    del perceptron, built_once
    folder = tmp_path_factory.mktemp("reopened")
    config = small(folder, "fedsimclr", rounds=1, probe={"repeats": 2, "epochs": 2})
    quick: dict[str, dict[str, Any]] = {"method": {"augmentation": "flip"}, "model": {"width": 1 / 128}}
    config = dataclasses.replace(
        config, **{key: dataclasses.replace(getattr(config, key), **values) for key, values in quick.items()}
    )
    run_config(config, folder / "run", Console(), never())
    return folder / "run"


def test_a_run_is_opened_as_it_was_left(finished: Path) -> None:
    config = config_of(finished)
    opened = reopen(finished)
    assert opened.experiment.config == config
    chex.assert_trees_all_equal(opened.state, final_state(finished, 1, state_shapes(build(config))))
    assert [record["round"] for record in opened.history.records[0]] == [1]


def test_probing_again_finds_what_the_run_found(finished: Path) -> None:
    summary = read_checked_json(finished / "summary.json")
    assert probe.main(["probe", str(finished)]) == 0
    assert probe.main(["probe", str(finished), "--layer", "features", "--percent", "20,60"]) == 0
    found = read_checked_json(finished / "probes.json")
    assert found["projection"]["seeds"][0]["trained"] == summary["probe_by_percent"]
    assert list(found["features"]["seeds"][0]["trained"]) == ["20", "60"]
    first = json.loads((finished / "metrics.jsonl").read_text().splitlines()[0])
    assert found["projection"]["seeds"][0]["random_encoder"] == first["random_encoder_probe"]


def test_every_pair_of_domains_is_measured(finished: Path) -> None:
    assert shift.main(["domain_shift", str(finished), "--batches", "2", "--repeats", "3"]) == 0
    found = read_checked_json(finished / "domain_shift.json")
    assert len(found["pairs"]) == 6 * 5 // 2
    for pair in found["pairs"]:
        assert len(pair["covariance"]) == len(pair["correlation"]) == 3
        assert np.abs(pair["correlation"]).max() <= 1 + 1e-9
        assert pair["mutual_information"] > 0


def test_losses_that_compare_domains_are_measured_too(tmp_path: Path, perceptron: None) -> None:
    """GroupDRO gives the unseen domain no weight, so that its gradient is zero."""
    del perceptron
    config = small(tmp_path, "groupdro", rounds=1)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, excluded="r15"))
    run_config(config, tmp_path / "run", Console(), never())
    assert shift.main(["domain_shift", str(tmp_path / "run"), "--batches", "2", "--repeats", "1"]) == 0
    with pytest.raises(SystemExit):
        shift.main(["domain_shift", str(tmp_path / "run"), "--batches", "0"])
    pairs = read_checked_json(tmp_path / "run" / "domain_shift.json")["pairs"]
    assert len(pairs) == 5 * 4 // 2, "one domain takes no part"
    for pair in pairs:
        assert (pair["correlation"] == [0.0]) == (config.data.target in pair["domains"])


def test_samples_of_no_given_split_are_not_measured(tmp_path: Path, perceptron: None) -> None:
    """They are not a number, and neither would figures of them be."""
    del perceptron
    data = domains_of((16, 16, 16))
    used = np.random.default_rng(0).random(48) < 0.5
    inputs = np.where(used[:, None, None, None], data.inputs / np.float32(255), np.nan).astype(np.float32)
    data = data._replace(inputs=inputs, splits=Splits(used, np.zeros(48, bool), np.zeros(48, bool)))
    config = small(tmp_path, rounds=1)
    with lending({"own": data}):
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name="own", target="east"))
        run_config(config, tmp_path / "run", Console(), never())
        assert shift.main(["domain_shift", str(tmp_path / "run"), "--batches", "2", "--repeats", "1"]) == 0
    for pair in read_checked_json(tmp_path / "run" / "domain_shift.json")["pairs"]:
        assert np.isfinite([*pair["covariance"], pair["mutual_information"]]).all()


def test_what_cannot_be_opened_is_refused_in_one_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"holds no config\.json; expected the folder of a run"):
        config_of(tmp_path)
    older = read_checked_json(finished / "config.json")
    write_checked_json(tmp_path / "config.json", older)
    with pytest.raises(UserError, match="holds no checkpoint"):
        reopen(tmp_path)
    older["config"]["method"]["gone"] = 1
    write_checked_json(tmp_path / "config.json", older)
    with pytest.raises(UserError, match=r"cannot be read .*; repeat the run"):
        config_of(tmp_path)
    assert probe.main(["probe", str(finished), "--layer", "pixels"]) == 2
    assert probe.main(["probe", str(tmp_path)]) == 2
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("fdgjax: ")
