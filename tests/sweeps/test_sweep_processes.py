"""Processes that share a sweep, are killed or leave: each cell is run once, and what is held or lost is said."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from fdgjax.cli.sweep import main
from fdgjax.run.console import Console
from fdgjax.run.records import lock_workdir
from fdgjax.sweeps.cells import read_spec
from fdgjax.sweeps.processes import run_workers
from fdgjax.sweeps.status import hold
from fdgjax.sweeps.work import work_on_cells
from tests.runs import ROOT, built_once, never, perceptron
from tests.sweeps.sweeps import cell, spec_file, sweep, tables

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


@pytest.mark.slow
def test_killed_twice_leaves_the_undisturbed_table(cache: Path, tmp_path: Path) -> None:
    """Once all processes of a sweep are killed, once the leading one alone, whose workers then stop by themselves."""
    spec = spec_file(tmp_path, cache, rounds=30)
    command = [sys.executable, "-m", "fdgjax", "sweep", str(spec), "--out", str(tmp_path / "cut"), "--jobs"]

    def kill_when(written: int, jobs: str, kill: Callable[[int, int], None]) -> None:
        process = subprocess.Popen([*command, jobs], cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: lines(tmp_path / "cut") > written, process)
        finally:
            kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        wait_for(lambda: all_free(tmp_path / "cut", ["seed0", "seed1", "seed2"]))
        assert len(list((tmp_path / "cut").glob("*/summary.json"))) < 3, "the sweep went on to its end"

    kill_when(2, "1", os.killpg)
    kill_when(lines(tmp_path / "cut") + 2, "2", os.kill)
    assert main(["sweep", str(spec), "--out", str(tmp_path / "cut")]) == 0
    assert main(["sweep", str(spec), "--out", str(tmp_path / "whole")]) == 0
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    assert "| all | ood_accuracy | " in tables(tmp_path / "cut")[0]


def lines(out: Path) -> int:
    """Rounds that the metrics of all runs hold."""
    return sum(path.read_text().count("\n") for path in out.glob("*/metrics.jsonl"))


def all_free(out: Path, names: list[str]) -> bool:
    """Whether no process holds one of the cells."""
    with contextlib.ExitStack() as held:
        return all(held.enter_context(hold(out, name)) for name in names)


def wait_for(moment: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + 120
    while not moment():
        assert process is None or process.poll() is None, "the sweep ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.002)


WORKER = """
import sys, threading
from fdgjax.sweeps.processes import stop_with_parent
stop = threading.Event()
stop_with_parent(stop)
sys.exit(7 if stop.wait(float(sys.argv[1])) else 0)
"""


@pytest.mark.slow
def test_workers_end_by_themselves_or_when_they_are_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run_workers([sys.executable, "-c", WORKER, "0.1"], 2, never()) == [0, 0]
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert run_workers([sys.executable, "-c", WORKER, "100"], 2, stop) == [7, 7]


@pytest.mark.slow
def test_a_cell_is_held_by_one_process_and_free_once_that_is_killed(tmp_path: Path) -> None:
    code = "import sys, time, pathlib\nfrom fdgjax.sweeps.status import hold\n"
    code += "with hold(pathlib.Path(sys.argv[1]), 'a') as mine:\n"
    code += "    print(mine, flush=True)\n    time.sleep(100)"
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with hold(tmp_path, "a") as held, hold(tmp_path, "b") as other:
            assert not held
            assert other
    finally:
        holder.kill()
        holder.communicate()
    with hold(tmp_path, "a") as mine, hold(tmp_path, "a") as again:
        assert mine
        assert not again


def test_where_the_file_system_has_no_locks_one_process_runs_and_several_are_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with hold(tmp_path, "a") as mine, hold(tmp_path, "a", wait=True) as again:
        assert mine
        assert again
    assert main(["sweep", str(spec_file(tmp_path, cache)), "--out", str(tmp_path / "out"), "--jobs", "2"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is on a file system without locks" in line
    assert not list(tmp_path.glob("out/seed*"))


@pytest.mark.slow
def test_a_cell_that_another_process_holds_is_left_to_it_and_said(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(spec_file(tmp_path, cache)), "--out", str(tmp_path / "out"), "--only", "seed1"]
    with hold(tmp_path / "out", "seed1") as mine:
        assert mine
        assert main(command) == 1
    assert "held or lost by other processes: seed1; once these have ended, the same command goes on" in " ".join(
        capsys.readouterr().out.split()
    )
    assert not (tmp_path / "out" / "seed1").exists()
    assert main(command) == 0


@pytest.mark.slow
def test_a_cell_that_a_run_without_a_sweep_trains_is_left_to_it_and_has_not_failed(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(spec_file(tmp_path, cache)), "--out", str(tmp_path / "out"), "--only", "seed1"]
    with lock_workdir(tmp_path / "out" / "seed1", pytest.fail):
        assert main(command) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "seed1: workdir" in said
    assert "held or lost by other processes: seed1" in said
    assert "failed" not in said
    assert main(command) == 0


@pytest.mark.slow
def test_a_cell_whose_process_dies_while_others_are_run_is_run_after_them(cache: Path, tmp_path: Path) -> None:
    cells = [cell(cache, "held"), cell(cache, "free")]
    screen = io.StringIO()
    with contextlib.ExitStack() as held:
        held.enter_context(hold(tmp_path, "held"))

        class Leaving(Console):
            """The holder of the first cell is gone once the second is run."""

            def say(self, text: str) -> None:
                super().say(text)
                if "free: ood_accuracy" in text:
                    held.close()

        work_on_cells(sweep(cells, tmp_path), Leaving(RichConsole(file=screen, width=200)), never())
    assert [re.sub(r".*] (\w+): .*", r"\1", line) for line in screen.getvalue().splitlines() if "/2]" in line] == [
        "free",
        "held",
    ]


@pytest.mark.slow
def test_shares_are_disjoint_complete_and_stable(cache: Path, tmp_path: Path) -> None:
    spec, out = spec_file(tmp_path, cache), tmp_path / "out"
    whole = [one.name for one in read_spec(spec, "paper")]
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "2/2"]) == 0
    done = {path.parent.name for path in out.glob("*/summary.json")}
    assert 0 < len(done) < len(whole)
    assert all(f"| {name} |" in tables(out)[0] for name in whole), "the table shows the cells of all shares"
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "2/2"]) == 0
    assert {path.parent.name for path in out.glob("*/summary.json")} == done, "the share changed once it was finished"
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "1/2"]) == 0
    assert {path.parent.name for path in out.glob("*/summary.json")} == set(whole)
