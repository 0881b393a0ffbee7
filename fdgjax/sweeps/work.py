"""One process's part of a sweep: it takes the next cell that no other process holds, until none is left."""

import contextlib
import json
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console as RichConsole

from fdgjax.config import read_config
from fdgjax.run.batched_runs import batches, run_batched
from fdgjax.run.compilation_cache import remember_compilations
from fdgjax.run.console import Console
from fdgjax.run.device_choice import prepare_cpu
from fdgjax.run.memory_check import lacks_memory
from fdgjax.run.records import InUseError, Workdir, description_of, open_workdir
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.sweeps.cells import Cell, Figures
from fdgjax.sweeps.comparison import mean_and_deviation, summary_figure, write_tables
from fdgjax.sweeps.status import failure_line, forget_failure, hold, is_open, note_failure, notes, summary_of
from fdgjax.utils.errors import UserError

OF_SAMPLES = ("name", "dir", "image_size", "same_images", "label", "categorical", "ignored", "missing")
"""The keys of `config.data` that decide, with the content of the files, what the samples are."""


class Sweep(NamedTuple):
    """A sweep to run.

    cells: the cells to run. shown: the cells in the tables, including those of other shares. out: the folder of the
    runs. published: the papers' figures. jobs: processes that share the cells. together: the largest number of cells
    that train as one program.
    """

    cells: list[Cell]
    shown: list[Cell]
    out: Path
    published: Figures
    jobs: int = 1
    together: int = 1


def begin(sweep: Sweep) -> None:
    """Forgets earlier failures, so that failed cells are tried again; raises like `check_folders`."""
    check_folders(sweep)
    for cell in sweep.cells:
        forget_failure(sweep.out, cell.name)


def check_folders(sweep: Sweep) -> None:
    """Raises a `UserError` if a cell's folder holds another experiment, such as the same cell at another scale, or one
    with other samples than another cell's of the same data."""
    for cell in sweep.shown:
        if Workdir(sweep.out / cell.name).config.exists():
            open_workdir(sweep.out / cell.name, read_config(cell.config))
    check_one_data(sweep)


def check_one_data(sweep: Sweep) -> None:
    """Raises a `UserError` if two cells with the same data set, folder and size of images or columns of tables were
    begun with other samples: their figures would be compared in one table."""
    seen: dict[str, tuple[str, str]] = {}
    for cell in sweep.shown:
        begun = description_of(sweep.out / cell.name)
        if begun is None or not begun.content:
            continue
        config = cell.config
        data = json.dumps([config.task, *(config.data[key] for key in OF_SAMPLES)])
        name, content = seen.setdefault(data, (cell.name, begun.content))
        if content != begun.content:
            raise UserError(
                f"{sweep.out} has {name} and {cell.name}, which were trained on other samples: their digests are "
                f"{content} and {begun.content}; expected one; take a new --out, or remove the runs of one of them"
            )


def work_on_cells(sweep: Sweep, console: Console, stop: threading.Event) -> None:
    """Runs cells until each is finished, has failed, or is held by another process.

    Raises:
      Interrupted: `stop` was set.
    """
    # All cells, then all that are left, as long as some were run: a process that held one of them may have died.
    while sum(attempt_cell(sweep, group, console, stop) for group in groups(sweep)):
        pass


def groups(sweep: Sweep) -> list[list[Cell]]:
    """The unfinished cells in groups that train as one program, of at most `sweep.together`."""
    left = unfinished(sweep)
    if sweep.together == 1:
        return [[cell] for cell in left]
    configs = [read_config(cell.config) for cell in left]
    return [[left[place] for place in group] for group in batches(configs, sweep.together)]


def unfinished(sweep: Sweep) -> list[Cell]:
    """The cells that are neither finished nor failed, by what the folder holds now."""
    return [cell for cell in sweep.cells if is_open(sweep.out, cell.name)]


def left_over(sweep: Sweep, cells: list[Cell], stopped: bool) -> list[Cell]:
    """`unfinished` of these cells at a sweep's end; raises `Interrupted` if there are any and the sweep was stopped."""
    left = unfinished(sweep._replace(cells=cells))
    if left and stopped:
        raise Interrupted(stopped_sweep(sweep))
    return left


def stopped_sweep(sweep: Sweep) -> str:
    """The message of a sweep that was stopped."""
    return f"stopped with {len(unfinished(sweep))} of {len(sweep.cells)} runs left; the same command goes on"


def attempt_cell(sweep: Sweep, group: Sequence[Cell], console: Console, stop: threading.Event) -> bool:
    """Runs those cells of a group that no other process holds, as one program. If that fails for lack of memory it runs
    them in halves, and if it fails otherwise, each alone.

    Returns:
      Whether there was anything to run.

    Raises:
      Interrupted: `stop` was set.
    """
    if stop.is_set():
        raise Interrupted(stopped_sweep(sweep))
    parts: list[list[Cell]] = []
    with contextlib.ExitStack() as held:
        mine = [cell for cell in group if held.enter_context(hold(sweep.out, cell.name))]
        # Another process may have finished it in the meantime.
        mine = [cell for cell in mine if is_open(sweep.out, cell.name)]
        if not mine:
            return False
        begin = time.perf_counter()
        try:
            run_cells(sweep, mine, console, stop)
        except Interrupted as news:
            raise Interrupted(f"{str(news).partition(';')[0]}; {stopped_sweep(sweep)}") from news
        except Exception as error:  # One cell's bug or lack of memory must not stop the others.
            if isinstance(error, InUseError) and len(mine) == 1:  # by a run that no sweep began
                console.say(f"{mine[0].name}: {error}")
                return False
            if len(mine) == 1:
                note_failure(sweep.out, mine[0].name, failure_text(error))
            else:
                size = len(mine) // 2 if lacks_memory(error) else 1
                parts = [mine[start : start + size] for start in range(0, len(mine), size)]
                names, how = ", ".join(cell.name for cell in mine), f"{size} by {size}" if size > 1 else "one by one"
                console.say(f"{names}: {how}, for {error}")
        if not parts:
            summaries = {each.name: summary_of(sweep.out, each.name) for each in sweep.cells}
            check_one_data(sweep)
            for cell in mine:
                console.say(outcome(sweep, cell, (time.perf_counter() - begin) / len(mine), summaries))
        # The next cell needs another program.
        jax.clear_caches()
        write_tables(sweep.shown, sweep.out, sweep.published)
    for part in parts:
        attempt_cell(sweep, part, console, stop)
    return True


def failure_text(error: Exception) -> str:
    """Why a run failed: a `UserError` in one line, any other error with its traceback; called in the error's
    handler."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}\n{traceback.format_exc()}"


def run_cells(sweep: Sweep, cells: Sequence[Cell], console: Console, stop: threading.Event) -> None:
    """One run, or several as one program."""
    configs, paths = [read_config(cell.config) for cell in cells], [sweep.out / cell.name for cell in cells]
    remember_compilations(configs[0])
    prepare_cpu(configs[0], paths[0])
    with screen(sweep.out, [cell.name for cell in cells], sweep.jobs == 1, console) as shown:
        if len(cells) == 1:
            run_config(configs[0], paths[0], shown, stop)
        else:
            run_batched(configs, paths, shown, stop)


@contextlib.contextmanager
def screen(out: Path, names: Sequence[str], alone: bool, console: Console) -> Iterator[Console]:
    """The output of the run of these cells: the console, or a file if several processes run at once."""
    if alone:
        console.say(f"{', '.join(names)}:" + (" (as one program; figures of rounds are means)" if names[1:] else ""))
        yield console
        return
    with (notes(out) / f"{names[0]}.log").open("a") as file:
        yield Console(RichConsole(file=file, width=120))


def outcome(sweep: Sweep, cell: Cell, seconds: float, summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """One line: the sweep's progress, the cell's figures, its time, and an estimate for the rest; `summaries`: of the
    sweep's cells by name, empty where one is not finished."""
    done, summary = [each for each in summaries.values() if each], summaries[cell.name]
    left = sum(not (each or failure_line(sweep.out, name)) for name, each in summaries.items())
    figures = "  ".join(
        f"{name} {mean_and_deviation(name, *figure.spread[:2])}"
        for name in cell.figures
        if (figure := summary_figure(summary, name)) is not None
    )
    failure = failure_line(sweep.out, cell.name)
    result = f"failed: {failure}" if failure else figures or f"no figure called {' or '.join(cell.figures)}"
    rest = sum(summary["wall_seconds"] for summary in done) / max(len(done), 1) * left / sweep.jobs
    eta = f"; {left} left, about {duration(rest)}" if left and done else f"; {left} left"
    return f"[{len(sweep.cells) - left}/{len(sweep.cells)}] {cell.name}: {result}, {seconds:.0f} s{eta}"


def duration(seconds: float) -> str:
    """`50 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
