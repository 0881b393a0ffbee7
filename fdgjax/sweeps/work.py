"""One process's part of a sweep: it takes the next unclaimed cell until none is left."""

import contextlib
import math
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from rich.console import Console as RichConsole

from fdgjax.config import read_config
from fdgjax.errors import UserError
from fdgjax.run.compilation_cache import remember_compilations
from fdgjax.run.console import Console
from fdgjax.run.devices import prepare_cpu
from fdgjax.run.family import families, run_family
from fdgjax.run.memory import lacks_memory
from fdgjax.run.recorded import Interrupted, run
from fdgjax.sweeps.cells import Cell, Figures
from fdgjax.sweeps.claims import claim, failure_of, is_open, note_failure, notes, summary_of
from fdgjax.sweeps.comparison import figure_of, percent, write_tables

POLL_SECONDS, LONGEST_POLL_SECONDS = 0.5, 15.0
"""Between two looks at the cells that others hold: first, and later, when many hosts look at one folder."""


class Sweep(NamedTuple):
    """A sweep to run.

    cells: to be run. shown: in the tables, the cells of other shares too. out: the folder of the runs. published: the
    papers' figures. jobs: processes that share the cells. wait: seconds for cells that others hold. batch: see
    `note_failure`. together: the most cells that train as one program.
    """

    cells: list[Cell]
    shown: list[Cell]
    out: Path
    published: Figures
    jobs: int = 1
    wait: float = math.inf
    batch: str = ""
    together: int = 1


def pauses(wait: float) -> Iterator[float]:
    """Seconds between the looks of a process that waits for what others hold: ever more, and `wait` in all."""
    length = POLL_SECONDS
    while wait > 0:
        yield min(length, wait)
        wait -= length
        length = min(2 * length, LONGEST_POLL_SECONDS)


def work(sweep: Sweep, console: Console, stop: threading.Event) -> None:
    """Runs cells until each is finished or has failed, by this process or by others.

    A cell that another process holds is waited for, for `sweep.wait`, and taken over where that process dies.

    Raises:
      Interrupted: `stop` was set.
    """
    rest = pauses(sweep.wait)
    most: dict[str, int] = {}
    while left := unfinished(sweep):
        tried = [attempt_group(sweep, group, most, console, stop) for group in groups(sweep, left, most)]
        if any(tried):
            rest = pauses(sweep.wait)
        elif (pause := next(rest, None)) is not None:
            stop.wait(pause)
        else:
            console.say(f"{len(left)} of {len(sweep.cells)} runs are left to the processes that hold them")
            return


def groups(sweep: Sweep, cells: Sequence[Cell], most: Mapping[str, int]) -> list[list[Cell]]:
    """The cells in groups that train as one program, of at most `sweep.together`, or of fewer where `most` says so."""
    if sweep.together == 1:
        return [[cell] for cell in cells]
    by_size: dict[int, list[Cell]] = {}
    for cell in cells:
        by_size.setdefault(most.get(cell.name, sweep.together), []).append(cell)
    return [
        [same[place] for place in group]
        for size, same in by_size.items()
        for group in families([read_config(cell.config) for cell in same], size)
    ]


def attempt_group(
    sweep: Sweep, group: Sequence[Cell], most: dict[str, int], console: Console, stop: threading.Event
) -> bool:
    """Runs those cells of a group that no other process has, as one program. Where they cannot be, writes to `most` how
    many of them may at a time: half for want of memory, else one.

    Returns:
      Whether there was anything to run.

    Raises:
      Interrupted: `stop` was set.
    """
    if len(group) == 1:
        return attempt(sweep, group[0], console, stop)
    if stop.is_set():
        raise Interrupted(left_over(sweep))
    with contextlib.ExitStack() as held:
        mine = [cell for cell in group if held.enter_context(claim(sweep.out, cell.name))]
        mine = [cell for cell in mine if is_open(sweep.out, cell.name)]
        if len(mine) > 1:
            begin = time.perf_counter()
            try:
                run_cells(sweep, mine, console, stop)
            except Interrupted:
                raise
            # Whatever it is, each cell's own run will say so, or do without it.
            except Exception as error:
                size, names = len(mine) // 2 if lacks_memory(error) else 1, [cell.name for cell in mine]
                console.say(f"{', '.join(names)}: {f'{size} by {size}' if size > 1 else 'one by one'}, for {error}")
                most.update(dict.fromkeys(names, size))
            else:
                for cell in mine:
                    console.say(outcome(sweep, cell, (time.perf_counter() - begin) / len(mine)))
            jax.clear_caches()
            write_tables(sweep.shown, sweep.out, sweep.published)
            return True
    tried = [attempt(sweep, cell, console, stop) for cell in mine]
    return any(tried)


def run_cells(sweep: Sweep, cells: Sequence[Cell], console: Console, stop: threading.Event) -> None:
    """Several runs as one program."""
    configs = [read_config(cell.config) for cell in cells]
    remember_compilations(configs[0])
    prepare_cpu(configs[0], sweep.out / cells[0].name)
    with screen(sweep.out, cells[0].name, sweep.jobs == 1, console) as shown:
        run_family(configs, [sweep.out / cell.name for cell in cells], shown, stop)


def unfinished(sweep: Sweep) -> list[Cell]:
    """The cells that are neither finished nor failed, by what the folder holds now."""
    return [cell for cell in sweep.cells if is_open(sweep.out, cell.name)]


def left_over(sweep: Sweep) -> str:
    """The message of a sweep that was stopped."""
    return f"stopped with {len(unfinished(sweep))} of {len(sweep.cells)} runs left; the same command goes on"


def attempt(sweep: Sweep, cell: Cell, console: Console, stop: threading.Event) -> bool:
    """Runs a cell unless another process has it, in which case it returns False.

    Raises:
      Interrupted: `stop` was set.
    """
    if stop.is_set():
        raise Interrupted(left_over(sweep))
    with claim(sweep.out, cell.name) as mine:
        # Another process may have finished it since we looked.
        if mine and is_open(sweep.out, cell.name):
            begin = time.perf_counter()
            try:
                run_cell(sweep, cell, console, stop)
            except Interrupted:
                raise
            except UserError as error:
                note_failure(sweep.out, cell.name, str(error), sweep.batch)
            except Exception as error:  # One cell's bug or lack of memory must not stop the others.
                reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
                note_failure(sweep.out, cell.name, reason, sweep.batch)
            console.say(outcome(sweep, cell, time.perf_counter() - begin))
            # The next cell compiles another program.
            jax.clear_caches()
            write_tables(sweep.shown, sweep.out, sweep.published)
    return mine


def run_cell(sweep: Sweep, cell: Cell, console: Console, stop: threading.Event) -> None:
    """One run."""
    config = read_config(cell.config)
    remember_compilations(config)
    prepare_cpu(config, sweep.out / cell.name)
    with screen(sweep.out, cell.name, sweep.jobs == 1, console) as shown:
        run(config, sweep.out / cell.name, shown, stop)


@contextlib.contextmanager
def screen(out: Path, name: str, alone: bool, console: Console) -> Iterator[Console]:
    """The run's own output: the console, or a file if several processes run at once."""
    if alone:
        console.say(f"{name}:")
        yield console
        return
    with (notes(out) / f"{name}.log").open("a") as file:
        yield Console(RichConsole(file=file, width=120))


def outcome(sweep: Sweep, cell: Cell, seconds: float) -> str:
    """One line: the sweep's progress, the cell's figures, its time, and an estimate for the rest."""
    done = [summary for c in sweep.cells if (summary := summary_of(sweep.out, c.name))]
    left = len(unfinished(sweep))
    summary = summary_of(sweep.out, cell.name)
    figures = "  ".join(
        f"{name} {percent(*figure)}" for name in cell.figures if (figure := figure_of(summary, name)) is not None
    )
    result = figures or f"failed: {failure_of(sweep.out, cell.name).partition(chr(10))[0]}"
    rest = sum(summary["wall_seconds"] for summary in done) / max(len(done), 1) * left / sweep.jobs
    eta = f"; {left} left, about {duration(rest)}" if left and done else f"; {left} left"
    return f"[{len(sweep.cells) - left}/{len(sweep.cells)}] {cell.name}: {result}, {seconds:.0f} s{eta}"


def duration(seconds: float) -> str:
    """`50 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
