"""The list of runs says of each what it is, how far it came, and in what it differs."""

import dataclasses
from pathlib import Path

import pytest

from fdgjax.cli.runs import main
from fdgjax.run.console import Console, headlines
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.files import lock
from tests.runs import StopAfter, built_once, never, perceptron, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["fdgjax runs", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_runs_are_listed_with_state_and_differing_keys(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small(cache, eval_every=1)
    summary = run_config(config, Path("runs/done"), Console(), never())
    with pytest.raises(Interrupted):
        run_config(dataclasses.replace(config, batch_size=32), Path("runs/deep/cut"), Console(), StopAfter(4))
    Path("runs/torn").mkdir()
    Path("runs/torn/config.json").write_text("{")
    capsys.readouterr()
    head, cut, done, torn = listed(capsys)
    assert head.split() == ["run", "method", "data", "unseen", "round", "state", "figures"]
    assert done.split()[:6] == ["runs/done", "fedavg", "rotated_digits", "r45", "4/4", "finished"]
    assert done.endswith(f"  {headlines(summary)}")
    assert cut.split()[0] == "runs/deep/cut"
    assert cut.split()[5] == "stopped"
    assert 0 < int(cut.split()[4].partition("/")[0]) < 4
    assert torn.split()[:2] == ["runs/torn", "damaged"]
    with lock(Path("runs/deep/cut/.lock")) as held:
        assert held
        assert listed(capsys)[1].split()[5] == "running"
    *_, keys, first, second = listed(capsys, "runs", "--compare")
    assert keys == "keys that differ: batch_size"
    assert (first, second) == ("  runs/deep/cut: batch_size=32", "  runs/done: batch_size=64")
    assert listed(capsys, "runs/done", "--compare")[2:] == ["keys that differ: none but those of the table"]


def test_a_folder_without_runs_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fdgjax runs", str(tmp_path)]) == 2
    assert "holds no run; expected folders" in capsys.readouterr().err
