"""Trains every cell of a table, resumably, in one process, in several, or in the tasks of a job on many hosts.

    fdgjax sweep --config=:pacs --methods fedavg,fedprox --targets all --seeds 3 --out DIR --data_dir DATA
    fdgjax sweep --config=fedprox --set method.mu=0.001,0.01,0.1 rounds=50 --out DIR --dry-run
    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --scale cpu --jobs 2
    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --shard 3/8     # the third of eight hosts that share DIR

SPEC is the name of one of the package's specs (below), or a Python file with `cells(scale: str) -> Sequence[Cell]`;
without it, the cells are all combinations of methods, values of --set KEY=A,B and targets. Each cell is a run in its
own folder. A finished cell is skipped, a stopped or lost one continues from its checkpoint, and one that failed is
listed and tried again next time. After each cell, `table.md` and `table.csv` in DIR are rewritten: our figures, beside
those of SPEC.csv if there is such a file.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from textwrap import shorten

from fdgjax.config import read_config, seeds_of
from fdgjax.run.console import Console
from fdgjax.sweeps.cells import Cell, Figures, own_specs, read_published, read_spec, spec_file
from fdgjax.sweeps.comparison import write_tables
from fdgjax.sweeps.grid import add_grid, grid
from fdgjax.sweeps.options import PAPER, add_options, read_arguments, spanned, sweep_of
from fdgjax.sweeps.processes import Job, conduct
from fdgjax.sweeps.status import failure_of, summary_of
from fdgjax.sweeps.work import Sweep, begin, check_folders, left_over, work_on_cells
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The options of a sweep; the help ends with the package's specs."""
    specs = "\n".join(f"  {name:21s} {shorten(line, 56, placeholder='...')}" for name, line in own_specs().items())
    made = argparse.ArgumentParser(
        prog="fdgjax sweep",
        description=__doc__,
        epilog=f"specs of the package:\n{specs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "spec", nargs="?", default="", metavar="SPEC", help="a spec's name, or a Python file with cells(scale)"
    )
    add_grid(made)
    add_options(made)
    return made


@command
def main(argv: Sequence[str]) -> int:
    """Runs the sweep; see `start_sweep`."""
    args = read_arguments(parser(), argv[1:])
    command = ["sweep", *argv[1:]]
    flags = [
        f"--{name}" for name in ("config", "methods", "targets", "seeds") if getattr(args, name) not in ("", [], None)
    ]
    if not args.spec and not args.config and not args.methods:
        raise UserError(
            "sweep got neither SPEC nor --config; expected a spec, or such as --config=:pacs --methods fedavg,fedprox; "
            "see fdgjax sweep --help"
        )
    if args.spec and flags:
        raise UserError(
            f"sweep got the spec '{args.spec}' and {flags[0]}; expected one of them; --set changes a spec's runs"
        )
    if args.spec:
        return start_sweep(*spec_cells(spec_file(args.spec), args), args, command)
    if args.scale != PAPER:
        raise UserError(
            f"--scale got '{args.scale}' without SPEC; expected it with a spec; --set rounds=N shortens runs"
        )
    # There is no protocol from which settings could depart.
    return start_sweep([cell._replace(reduced="") for cell in grid(args)], {}, args, command)


def spec_cells(spec: Path, args: argparse.Namespace) -> tuple[list[Cell], Figures]:
    """The cells of a spec with the settings of `--set`, and the published figures beside it."""
    return spanned(read_spec(spec, args.scale), args.set), read_published(spec)


def start_sweep(cells: Sequence[Cell], published: Figures, args: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the sweep that the arguments request.

    Args:
      cells: all of its cells.
      published: the papers' figures.
      args: the arguments defined by `add_options`.
      command: the command's words, subcommand first, with which workers are started.

    Returns:
      The exit status: 0 when all cells of the share are done, 1 when some are not, 2 for a mistake in the input, 128 +
      signal number when stopped by one, and 3 when time ran out.
    """
    sweep = sweep_of(cells, args, published)
    if args.dry_run:
        check_folders(sweep)
        print("\n".join(planned(sweep)))
        return 0
    return train_cells(sweep, partial(end, sweep), args, command)


def train_cells(
    sweep: Sweep, end: Callable[[Console, bool], int], args: argparse.Namespace, command: Sequence[str]
) -> int:
    """Trains a sweep's cells, in this process or in workers, and then calls `end`; see `Job` and `conduct`."""
    return conduct(Job(partial(begin, sweep), partial(work_on_cells, sweep), end), args, command)


def planned(sweep: Sweep) -> list[str]:
    """A sweep's runs, without the time they need: that follows from the first one."""
    done = [cell.name for cell in sweep.cells if (sweep.out / cell.name).is_dir() and summary_of(sweep.out, cell.name)]
    trained = sum(len(seeds_of(read_config(cell.config))) for cell in sweep.cells if cell.name not in done)
    lines = [f"  {cell.name}{' (finished)' if cell.name in done else ''}" for cell in sweep.cells]
    count, all_cells = len(sweep.cells), len(sweep.shown)
    runs = f"{count} runs" if count == all_cells else f"these {count} of {all_cells} runs"
    left = f"{count - len(done)} left to train, {trained} seeds in all; the first one tells how long the others take"
    return [*lines, f"{runs} in {sweep.out}: {left if trained else 'all finished' if count else 'none to train'}"]


def end(sweep: Sweep, console: Console, stopped: bool) -> int:
    """Writes the tables and prints the outcome. Returns the exit status.

    Raises:
      Interrupted: the sweep was stopped before all cells were done.
    """
    write_tables(sweep.shown, sweep.out, sweep.published)
    left = left_over(sweep, sweep.cells, stopped)
    console.say((sweep.out / "table.md").read_text())
    failed = [cell.name for cell in sweep.cells if failure_of(sweep.out, cell.name)]
    if failed:
        console.say(f"failed: {', '.join(failed)}; the same command tries them again")
    if left:
        names = ", ".join(cell.name for cell in left)
        console.say(f"held or lost by other processes: {names}; once these have ended, the same command goes on")
    return 1 if failed or left else 0
