"""Every cell of a table, resumable, by one process, by several, or by the tasks of a job on many hosts.

    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --scale cpu --jobs 2
    fdgjax sweep hfedf_pacs --out DIR --data_dir DATA --wait 300     # the same on every host that has DIR

SPEC is a name of the package's own, or a Python file with `cells(scale: str) -> Sequence[Cell]`. Each cell is a run in
a folder of its own. A finished cell is skipped, a stopped one goes on from its checkpoint, and one that failed is
listed, and tried again next time. After each cell `table.md` and `table.csv` in DIR are written anew: our figures
beside those of SPEC.csv.
"""

import argparse
import logging
import math
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from fdgjax.config import read_config
from fdgjax.door import door
from fdgjax.records import open_workdir
from fdgjax.run.console import Console
from fdgjax.run.recorded import Interrupted
from fdgjax.signals import save_on_signals
from fdgjax.sweeps.cells import Cell, read_published, read_spec, spec_file
from fdgjax.sweeps.claims import failure_of, forget_failure
from fdgjax.sweeps.comparison import write_tables
from fdgjax.sweeps.options import add_options, limit_time, select
from fdgjax.sweeps.processes import run_workers, stop_with_parent
from fdgjax.sweeps.work import Sweep, left_over, unfinished, work


@door
def main(argv: Sequence[str]) -> int:
    """Runs the sweep; see `start`."""
    parser = argparse.ArgumentParser(prog="fdgjax sweep", description=str(__doc__).partition("\n")[0])
    parser.add_argument("spec", metavar="SPEC", help="Python file with cells(scale), or a name of the package's own")
    add_options(parser)
    args = parser.parse_args(argv[1:])
    return start(spec_file(args.spec), args, ["sweep", *argv[1:]])


def start(spec: Path, args: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs what the arguments ask for.

    Args:
      spec: the file of the cells.
      args: those of `add_options`.
      command: the same command as a subcommand of fdgjax, which workers are started with.

    Returns:
      The exit status: 0 when all cells are done or left to others, 1 when some are not, 2 for a mistake in the input,
      128 + signal number when stopped by one, and 3 when time ran out.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    console, stop = Console(), threading.Event()
    received = save_on_signals(stop)
    limit_time(stop, args.time_budget)
    try:
        selected = select(read_spec(spec)(args.scale), args)
        published = read_published(spec)
        sweep = Sweep(
            selected.share, selected.all, args.out, published, args.jobs, args.wait, args.batch, args.together
        )
        if args.worker:
            stop_with_parent(stop)
            work(sweep, console, stop)
            return 0
        return lead(sweep, command, console, stop)
    except Interrupted as news:
        if not args.worker:
            console.say(str(news))
        return 128 + received[0] if received else 3


def lead(sweep: Sweep, command: Sequence[str], console: Console, stop: threading.Event) -> int:
    """Runs the whole sweep, alone or by workers, and prints the outcome. Returns the exit status.

    Raises:
      Interrupted: `stop` was set before all was done.
    """
    for cell in sweep.shown:
        refuse_another(sweep.out / cell.name, cell)
    for cell in sweep.cells:
        forget_failure(sweep.out, cell.name, sweep.batch)
    statuses: list[int] = []
    if sweep.jobs == 1:
        work(sweep, console, stop)
    else:
        statuses = run_workers([sys.executable, "-m", "fdgjax", *command, "--worker"], sweep.jobs, stop)
        if any(statuses) and not stop.is_set():
            console.say(f"processes ended with status {', '.join(map(str, statuses))}")
    write_tables(sweep.shown, sweep.out, sweep.published)
    if unfinished(sweep) and stop.is_set():
        raise Interrupted(left_over(sweep))
    console.say((sweep.out / "table.md").read_text())
    failed = [cell.name for cell in sweep.cells if failure_of(sweep.out, cell.name)]
    if failed:
        console.say(f"failed: {', '.join(failed)}; the same command tries them again")
    left_to_others = math.isfinite(sweep.wait) and not any(statuses)
    return 1 if failed or (unfinished(sweep) and not left_to_others) else 0


def refuse_another(path: Path, cell: Cell) -> None:
    """Raises a `UserError` where the folder holds another experiment, such as the same cell at another scale."""
    if (path / "config.json").exists():
        open_workdir(path, read_config(cell.config))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
