"""Trains every cell of a table, resumably, in one process, in several, or in the tasks of a job on many hosts.

    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --scale cpu --jobs 2
    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --shard 3/8     # the third of eight hosts that share DIR

SPEC is the name of one of the package's specs, or a Python file with `cells(scale: str) -> Sequence[Cell]`. Each cell
is a run in its own folder. A finished cell is skipped, a stopped or lost one continues from its checkpoint, and one
that failed is listed and tried again next time. After each cell, `table.md` and `table.csv` in DIR are rewritten: our
figures beside those of SPEC.csv.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fdgjax.config import read_config
from fdgjax.run.console import Console
from fdgjax.run.records import open_workdir
from fdgjax.run.runner import Interrupted
from fdgjax.sweeps.cells import read_published, read_spec, spec_file
from fdgjax.sweeps.comparison import write_tables
from fdgjax.sweeps.options import add_options, selected_cells
from fdgjax.sweeps.processes import Job, conduct
from fdgjax.sweeps.status import failure_of, forget_failure
from fdgjax.sweeps.work import Sweep, stopped_sweep, unfinished, work_on_cells
from fdgjax.utils.command import command


@command
def main(argv: Sequence[str]) -> int:
    """Runs the sweep; see `start_sweep`."""
    parser = argparse.ArgumentParser(prog="fdgjax sweep", description=str(__doc__).partition("\n")[0])
    parser.add_argument("spec", metavar="SPEC", help="Python file with cells(scale), or a name of the package's own")
    add_options(parser)
    args = parser.parse_args(argv[1:])
    return start_sweep(spec_file(args.spec), args, ["sweep", *argv[1:]])


def start_sweep(spec: Path, args: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the sweep that the arguments request.

    Args:
      spec: the file of the cells.
      args: the arguments defined by `add_options`.
      command: the command's words, subcommand first, with which workers are started.

    Returns:
      The exit status: 0 when all cells of the share are done, 1 when some are not, 2 for a mistake in the input, 128 +
      signal number when stopped by one, and 3 when time ran out.
    """
    selected = selected_cells(read_spec(spec)(args.scale), args)
    sweep = Sweep(selected.share, selected.all, args.out, read_published(spec), args.jobs, args.together)
    return conduct(Job(partial(begin, sweep), partial(work_on_cells, sweep), partial(end, sweep)), args, command)


def begin(sweep: Sweep) -> None:
    """Forgets earlier failures, so that failed cells are tried again. Raises a `UserError` if a cell's folder holds
    another experiment, such as the same cell at another scale."""
    for cell in sweep.shown:
        if (sweep.out / cell.name / "config.json").exists():
            open_workdir(sweep.out / cell.name, read_config(cell.config))
    for cell in sweep.cells:
        forget_failure(sweep.out, cell.name)


def end(sweep: Sweep, console: Console, stopped: bool) -> int:
    """Writes the tables and prints the outcome. Returns the exit status.

    Raises:
      Interrupted: the sweep was stopped before all cells were done.
    """
    write_tables(sweep.shown, sweep.out, sweep.published)
    left = unfinished(sweep)
    if left and stopped:
        raise Interrupted(stopped_sweep(sweep))
    console.say((sweep.out / "table.md").read_text())
    failed = [cell.name for cell in sweep.cells if failure_of(sweep.out, cell.name)]
    if failed:
        console.say(f"failed: {', '.join(failed)}; the same command tries them again")
    if left:
        names = ", ".join(cell.name for cell in left)
        console.say(f"held or lost by other processes: {names}; once these have ended, the same command goes on")
    return 1 if failed or left else 0
