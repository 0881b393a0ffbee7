"""Tasks of submitit share one folder, and one that is told to go saves and is queued anew."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fdgjax.sweeps.share import share_of
from launch import submitit
from tests.launch.test_clusters import understood
from tests.runs import ROOT
from tests.sweeps.sweeps import SPEC

pytest.importorskip("submitit")
COMMAND = ("reproduce", "hfedf-pacs", "--out")
COMMAND_LINE = ("fdgjax", "reproduce")


def test_every_task_runs_its_share_of_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []

    def main(argv: Sequence[str]) -> int:
        ran.append(argv)
        return 0

    monkeypatch.setattr("launch.submitit.subcommands.main", main)
    words = ["--tasks", "3", "--cluster", "debug", "--stay", "--", *COMMAND, str(tmp_path)]
    assert submitit.main(["launch.submitit", *words]) == 0
    asked = [understood(list(rest)) for program, subcommand, *rest in ran if (program, subcommand) == COMMAND_LINE]
    assert [share_of(args.shard, {}) for args in asked] == [(1, 3), (2, 3), (3, 3)]
    assert {(args.name, args.out) for args in asked} == {("hfedf-pacs", tmp_path)}


def test_a_task_that_fails_fails_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("launch.submitit.subcommands.main", lambda argv: 1)
    before = signal.getsignal(signal.SIGUSR2)
    assert submitit.main(["launch.submitit", "--cluster", "debug", "--stay", "--", *COMMAND, str(tmp_path)]) == 1
    assert "failed: fdgjax ended with status 1; the log has the reason" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGUSR2) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "train", "--config=fedavg"], "unknown COMMAND 'train'; expected one of: choose, contributions, repr"),
        (["--", "sweep", "hfedf_pacs"], "without --out; expected the folder"),
        (["--slurm", "gpu", "--", *COMMAND, "OUT"], "--slurm got 'gpu'; expected KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert submitit.main(["launch.submitit", "--cluster", "debug", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def trains_in(workdir: Path) -> int:
    """The process that trains, or was the last to train, in a folder."""
    return int((workdir / ".lock").read_text().split()[0])


@pytest.mark.slow
def test_a_task_that_is_preempted_saves_is_queued_anew_and_ends(cache: Path, tmp_path: Path) -> None:
    """By submitit's executor for one machine, in processes of its own."""
    spec, out = tmp_path / "spec.py", tmp_path / "out"
    spec.write_text(SPEC.replace("CACHE", str(cache)).replace("ROUNDS", "30"))
    words = ["--cluster", "local", "--stay", "--hours", "1", "--", "sweep", str(spec), "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "launch.submitit", *words, "--only", "seed0"], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        metrics = out / "seed0" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text()):
            assert process.poll() is None
            time.sleep(0.005)
        first = trains_in(out / "seed0")
        os.kill(first, signal.SIGUSR2)
        assert process.wait(600) == 0
    assert (out / "seed0" / "summary.json").exists()
    assert trains_in(out / "seed0") != first, "the task was not queued anew"
    assert "stopped after round " in "".join(file.read_text() for file in out.glob("submitit/*/*.out"))
