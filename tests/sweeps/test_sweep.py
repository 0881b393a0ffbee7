"""A sweep runs every cell once, by however many processes, goes on where it was stopped, and says what failed."""

import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console as RichConsole

from fdgjax.cli.reproduce import main as reproduce
from fdgjax.cli.sweep import main
from fdgjax.config import Config
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.sweeps.status import failure_of, forget_failure, note_failure, summary_of
from fdgjax.sweeps.work import work_on_cells
from tests.runs import StopAfter, built_once, never, perceptron, records_of
from tests.sweeps.sweeps import cell, spec_file, sweep, tables

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


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
def test_a_time_budget_ends_a_sweep_that_can_go_on(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "tiny", spec_file(tmp_path, cache))
    command = ["reproduce", "tiny", "--out", str(tmp_path / "out"), "--only", "seed1"]
    assert reproduce([*command, "--time_budget", "0.01"]) == 3
    assert not list((tmp_path / "out").glob("*/summary.json"))
    assert reproduce(command) == 0
    assert "| seed1 | ood_accuracy | " in tables(tmp_path / "out")[0]


@pytest.mark.slow
def test_another_scale_in_the_same_folder_is_refused(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(spec_file(tmp_path, cache)), "--out", str(tmp_path / "out"), "--only", "seed1"]
    assert main([*command, "--set", "rounds=1", "batch_size=32", "eval_batch_size=99"]) == 0
    assert "| all |" not in tables(tmp_path / "out")[0], "a mean over some of its cells"
    assert "Reduced: rounds=1, batch_size=32." in tables(tmp_path / "out")[0]
    assert main(command) == 2
    assert "holds another experiment: config.batch_size is 32 there and 64 here" in capsys.readouterr().err


def written_data(folder: Path, seed: int) -> Path:
    """Arrays of three domains."""
    folder.mkdir()
    for name in ("a", "b", "c"):
        inputs = np.random.default_rng([seed, ord(name)]).normal(size=(20, 5)).astype(np.float32)
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=np.arange(20) % 2)
    return folder


@pytest.mark.slow
def test_cells_of_other_samples_are_refused_and_only_keeps_the_rows_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = (written_data(tmp_path / f"data{seed}", seed) for seed in (0, 1))
    command = ["sweep", "--config=fedavg:arrays", "--targets", "a,b", "--out", str(tmp_path / "out")]
    command += ["--set", "rounds=1", "model.name=linear", "writers=", "local_epochs=1"]
    assert main([*command, "--data_dir", str(first), "--only", "fedavg-a"]) == 0
    assert main([*command, "--data_dir", str(first)]) == 0
    whole = tables(tmp_path / "out")
    assert main([*command, "--data_dir", str(first), "--only", "fedavg-a"]) == 0
    assert tables(tmp_path / "out") == whole
    shutil.rmtree(tmp_path / "out/fedavg-b")
    capsys.readouterr()
    for _ in range(2):  # when it is trained, and when it is there
        assert main([*command, "--data_dir", str(other)]) == 2
        said = capsys.readouterr().err
        assert "has fedavg-a and fedavg-b, which were trained on other samples" in said
    assert main([*command, "--data_dir", str(other), "--dry-run"]) == 2
    assert main([*command, "--set", "batch_size=7", "--data_dir", str(first), "--dry-run"]) == 2
    assert "holds another experiment" in capsys.readouterr().err


SPEC = "from fdgjax.config import make_config\nfrom fdgjax.sweeps.cells import Cell\n"
SPECS_WITH_MISTAKES = {
    "": "no function cells",
    "cells = 3": "no function cells",
    "def cells(:": "cannot be run (SyntaxError: ",
    "def cells(): return []": "cannot be run (TypeError: ",
    "def cells(scale): return {}[scale]": "cannot be run (KeyError: 'paper' at wrong.py:1)",
    "def cells(scale): return ['a']": "gave 'a'; expected cells(scale)",
    "def cells(scale): return []": "the spec has no cells",
    SPEC + "def cells(scale): return [Cell('..', make_config('fedavg'))]": "a run is called '..'; expected the name",
}


def test_a_spec_may_import_its_neighbours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a_neighbour.py").write_text("NAME = 'found'")
    text = f"{SPEC}import a_neighbour\ndef cells(scale): return [Cell(a_neighbour.NAME, make_config('fedavg'))]"
    (tmp_path / "asking.py").write_text(text)
    assert main(["sweep", str(tmp_path / "asking.py"), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "  found\n" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_file(tmp_path, cache)
    out = ["--out", str(tmp_path / "out")]
    assert main(["sweep", "nowhere.py", *out]) == 2
    assert main(["sweep", str(spec), *out, "--only", "no-such-cell"]) == 2
    assert main(["sweep", str(spec), *out, "--set", "round=3"]) == 2
    assert main(["sweep", str(spec), *out, "--set", "rounds=many"]) == 2
    assert main(["sweep", str(spec), *out, "--shard", "3/2"]) == 2
    for text in SPECS_WITH_MISTAKES:
        (tmp_path / "wrong.py").write_text(text)
        assert main(["sweep", str(tmp_path / "wrong.py"), *out, "--dry-run"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5 + len(SPECS_WITH_MISTAKES)
    for line, said in zip(errors[5:], SPECS_WITH_MISTAKES.values(), strict=True):
        assert said in line
    assert all(line.startswith("fdgjax: ") for line in errors)
    assert not (tmp_path / "out").exists()


def test_a_failure_of_another_process_is_seen(cache: Path, tmp_path: Path) -> None:
    note_failure(tmp_path, "one", "no memory")
    work_on_cells(sweep([cell(cache, "one")], tmp_path), Console(), never())
    assert not (tmp_path / "one").exists()
