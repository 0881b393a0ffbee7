"""A sweep runs every cell once, by however many processes, goes on where it was stopped, and says what failed."""

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
from typing import Any

import pytest
from ml_collections import ConfigDict
from rich.console import Console as RichConsole

from fdgjax.cli.reproduce import main as reproduce
from fdgjax.cli.sweep import main
from fdgjax.config import Config, to_plain
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.sweeps.cells import Cell, read_spec
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.sweeps.processes import run_workers
from fdgjax.sweeps.status import failure_of, forget_failure, hold, note_failure, summary_of
from fdgjax.sweeps.work import Sweep, work_on_cells
from fdgjax.utils.errors import UserError
from tests.runs import ROOT, StopAfter, built_once, never, perceptron, records_of, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")

SPEC = """
import jax
from ml_collections import ConfigDict
from fdgjax.config import Config, to_plain
from fdgjax.models import MODELS, Backbone
from fdgjax.sweeps.cells import Cell
from tests.runs import Perceptron, small

jax.config.update("jax_disable_most_optimizations", True)
MODELS.setdefault("perceptron", Backbone(Perceptron, "of the tests"))


def cells(scale):
    many = dict(rounds=ROUNDS, checkpoint_every=3, eval_every=7, data={"target": "r0"})
    configs = [ConfigDict(to_plain(small("CACHE", seed=seed, **many))) for seed in range(3)]
    return [Cell(f"seed{config.seed}", config, group="all") for config in configs]
"""


def spec_file(folder: Path, cache: Path, rounds: int = 4) -> Path:
    path = folder / "spec.py"
    path.write_text(SPEC.replace("CACHE", str(cache)).replace("ROUNDS", str(rounds)))
    path.with_suffix(".csv").write_text(
        "# remark\nname,figure,mean,deviation,table\nall,ood_accuracy,50.0,0.5,Table 1\n"
    )
    return path


def cell(cache: Path, name: str, **changes: object) -> Cell:
    return Cell(name, ConfigDict(to_plain(small(cache, **changes))))


def sweep(cells: list[Cell], out: Path) -> Sweep:
    return Sweep(cells, cells, out, {})


def tables(out: Path) -> tuple[str, str]:
    return (out / "table.md").read_text(), (out / "table.csv").read_text()


@pytest.mark.slow
def test_stopped_and_continued_leaves_the_undisturbed_table(cache: Path, tmp_path: Path) -> None:
    cells = [cell(cache, "one"), cell(cache, "two", seed=1)]
    work_on_cells(sweep(cells, tmp_path / "whole"), Console(), never())
    for looks in (3, 6):
        with pytest.raises(Interrupted):
            work_on_cells(sweep(cells, tmp_path / "cut"), Console(), StopAfter(looks))
    screen = io.StringIO()
    work_on_cells(sweep(cells, tmp_path / "cut"), Console(RichConsole(file=screen, width=200)), never())
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    assert "[2/2] two: ood_accuracy " in screen.getvalue()
    before = (tmp_path / "cut/one/summary.json").stat().st_mtime_ns
    work_on_cells(sweep(cells, tmp_path / "cut"), Console(), never())
    assert (tmp_path / "cut/one/summary.json").stat().st_mtime_ns == before, "a finished cell ran again"


@pytest.mark.slow
def test_cells_that_differ_in_numbers_train_together_and_leave_what_they_leave_alone(
    cache: Path, tmp_path: Path
) -> None:
    rates = {"one": 1e-2, "two": 3e-3, "three": 1e-3}
    cells = [cell(cache, name) for name in rates] + [cell(cache, "other", rounds=3)]
    for one, rate in zip(cells, rates.values(), strict=False):
        one.config.method.client_learning_rate = rate
    screen = io.StringIO()
    together = sweep(cells, tmp_path / "together")._replace(together=2)
    work_on_cells(together, Console(RichConsole(file=screen, width=200)), never())
    assert screen.getvalue().count("2 runs as one program: method.client_learning_rate=0.01,0.003") == 1
    assert "[4/4] other: ood_accuracy " in screen.getvalue()
    work_on_cells(sweep(cells, tmp_path / "alone"), Console(), never())
    for one in cells:
        assert records_of(tmp_path / "together" / one.name) == records_of(tmp_path / "alone" / one.name)
    assert tables(tmp_path / "together") == tables(tmp_path / "alone")


@pytest.mark.slow
def test_a_family_that_cannot_train_together_is_run_one_by_one(cache: Path, tmp_path: Path) -> None:
    cells = [cell(cache, name) for name in ("one", "two")]
    cells[0].config.method.client_learning_rate = 1e30
    screen = io.StringIO()
    work_on_cells(sweep(cells, tmp_path)._replace(together=2), Console(RichConsole(file=screen, width=300)), never())
    assert re.search("one, two: one by one, for client . of seed 0 sent an update with", screen.getvalue())
    assert "one: failed: client " in screen.getvalue()
    assert "two: ood_accuracy " in screen.getvalue()


@pytest.mark.slow
def test_a_family_that_memory_does_not_hold_trains_by_halves(cache: Path, tmp_path: Path) -> None:
    cells = [cell(cache, name) for name in ("one", "two", "three", "four")]
    for one, rate in zip(cells, (1e-2, 3e-3, 2e-3, 1e-3), strict=True):
        one.config.method.client_learning_rate = rate
    whole: list[int] = []

    def free() -> int:
        """No memory for the first program, that of all four."""
        whole.append(0)
        return 0 if len(whole) == 1 else 2**40

    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgjax.run.runner.free_bytes", free)
        work_on_cells(
            sweep(cells, tmp_path)._replace(together=4), Console(RichConsole(file=screen, width=400)), never()
        )
    assert "one, two, three, four: 2 by 2, for memory: a round needs" in screen.getvalue()
    assert screen.getvalue().count("4 runs as one program") == 1
    assert screen.getvalue().count("2 runs as one program") == 2
    assert all(summary_of(tmp_path, one.name) for one in cells)


@pytest.mark.slow
def test_a_cell_that_fails_is_listed_and_the_others_run_and_it_is_tried_again(cache: Path, tmp_path: Path) -> None:
    bad, broken, good = cell(cache, "bad"), cell(cache, "broken"), cell(cache, "good")
    bad.config.data.target = "atlantis"
    cells = [bad, broken, good]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgjax.sweeps.work.run_config", out_of_memory)
        screen = io.StringIO()
        work_on_cells(sweep(cells, tmp_path), Console(RichConsole(file=screen, width=200)), never())
    assert "[1/3] bad: failed: " in screen.getvalue()
    assert re.search(r"\[2/3\] broken: failed: MemoryError: too large, \d+ s; 1 left", screen.getvalue())
    assert "[3/3] good: ood_accuracy " in screen.getvalue()
    table, _ = tables(tmp_path)
    assert table.count("| failed |") == 2
    assert "MemoryError: too large" in table
    assert "Traceback" in failure_of(tmp_path, "broken")
    forget_failure(tmp_path, "broken")
    work_on_cells(sweep(cells, tmp_path), Console(), never())
    assert tables(tmp_path)[0].count("| failed |") == 1


def out_of_memory(config: Config, path: Path, *more: Any) -> dict[str, Any]:
    """A run, except that the one called `broken` ends with an error nobody foresaw."""
    if path.name == "broken":
        raise MemoryError("too large")
    return run_config(config, path, *more)


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


def test_workers_end_by_themselves_or_when_they_are_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run_workers([sys.executable, "-c", WORKER, "0.1"], 2, never()) == [0, 0]
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert run_workers([sys.executable, "-c", WORKER, "100"], 2, stop) == [7, 7]


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
    whole = [one.name for one in read_spec(spec)("paper")]
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "2/2"]) == 0
    done = {path.parent.name for path in out.glob("*/summary.json")}
    assert 0 < len(done) < len(whole)
    assert all(f"| {name} |" in tables(out)[0] for name in whole), "the table shows the cells of all shares"
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "2/2"]) == 0
    assert {path.parent.name for path in out.glob("*/summary.json")} == done, "the share changed once it was finished"
    assert main(["sweep", str(spec), "--out", str(out), "--shard", "1/2"]) == 0
    assert {path.parent.name for path in out.glob("*/summary.json")} == set(whole)


def test_a_time_budget_ends_a_sweep_that_can_go_on(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "tiny", spec_file(tmp_path, cache))
    command = ["reproduce", "tiny", "--out", str(tmp_path / "out"), "--only", "seed1"]
    assert reproduce([*command, "--time_budget", "0.01"]) == 3
    assert not list((tmp_path / "out").glob("*/summary.json"))
    assert reproduce(command) == 0
    assert "| seed1 | ood_accuracy | " in tables(tmp_path / "out")[0]


def test_another_scale_in_the_same_folder_is_refused(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(spec_file(tmp_path, cache)), "--out", str(tmp_path / "out"), "--only", "seed1"]
    assert main([*command, "--set", "rounds=1", "batch_size=32", "chunk=4"]) == 0
    assert "| all |" not in tables(tmp_path / "out")[0], "a mean over some of its cells"
    assert "Reduced: rounds=1, batch_size=32." in tables(tmp_path / "out")[0]
    assert main(command) == 2
    assert "holds another experiment: config.batch_size is 32 there and 64 here" in capsys.readouterr().err


def test_mistakes_are_one_line(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_file(tmp_path, cache)
    out = ["--out", str(tmp_path / "out")]
    assert main(["sweep", "nowhere.py", *out]) == 2
    assert main(["sweep", str(spec), *out, "--only", "no-such-cell"]) == 2
    assert main(["sweep", str(spec), *out, "--set", "round=3"]) == 2
    assert main(["sweep", str(spec), *out, "--set", "rounds=many"]) == 2
    assert main(["sweep", str(spec), *out, "--shard", "3/2"]) == 2
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(UserError, match="no function cells"):
        read_spec(empty)
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5
    assert all(line.startswith("fdgjax: ") for line in errors)
    assert not (tmp_path / "out").exists()


def test_a_failure_of_another_process_is_seen(cache: Path, tmp_path: Path) -> None:
    note_failure(tmp_path, "one", "no memory")
    work_on_cells(sweep([cell(cache, "one")], tmp_path), Console(), never())
    assert not (tmp_path / "one").exists()
