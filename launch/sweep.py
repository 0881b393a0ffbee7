"""Every cell of a table, resumable, by one process, by several, or by a share of a job array.

    python -m launch.sweep launch/specs/hfedf_pacs.py --out DIR --data_dir DATA --scale cpu --jobs 2
    python -m launch.sweep launch/specs/hfedf_pacs.py --out DIR --data_dir DATA --shard 3/8

SPEC is a Python file with `cells(scale: str) -> Sequence[Cell]`. Each cell is a run in a folder of its own. A finished
cell is skipped, a stopped one goes on from its checkpoint, and one that failed is listed, and tried again next time.
After each cell `table.md` and `table.csv` in DIR are written anew: our figures beside those of SPEC.csv.
"""

import argparse
import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from fdgjax.console import Console
from fdgjax.errors import UserError
from fdgjax.main import save_on_signals
from fdgjax.run import Interrupted
from launch.cells import Cell, read_published, read_spec
from launch.claims import failure_of, forget_failure
from launch.comparison import write_tables
from launch.processes import run_workers, stop_with_parent
from launch.work import Sweep, unfinished, work


def main(argv: Sequence[str]) -> int:
    """Runs the sweep.

    Returns:
      The exit status: 0 when all cells are done, 1 when some are not, 2 for a mistake in the input, 128 + signal number
      when stopped by one, and 3 when time ran out.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    args, console, stop = parse(argv), Console(), threading.Event()
    received = save_on_signals(stop)
    if args.time_budget:
        timer = threading.Timer(args.time_budget, stop.set)
        timer.daemon = True
        timer.start()
    try:
        cells = read_spec(args.spec)(args.scale)
        sweep = Sweep(select(cells, args), args.out, read_published(args.spec), args.jobs)
        if args.worker:
            stop_with_parent(stop)
            work(sweep, console, stop)
            return 0
        return lead(sweep, argv, console, stop)
    except UserError as error:
        print(f"fdgjax: {error}", file=sys.stderr)
        return 2
    except Interrupted as news:
        console.say(str(news))
        return 128 + received[0] if received else 3


def lead(sweep: Sweep, argv: Sequence[str], console: Console, stop: threading.Event) -> int:
    """The whole sweep, alone or by workers; says what came of it. Returns the exit status.

    Raises:
      Interrupted: `stop` was set before all was done.
    """
    sweep.out.mkdir(parents=True, exist_ok=True)
    for cell in sweep.cells:
        forget_failure(sweep.out, cell.name)
    if sweep.jobs == 1:
        work(sweep, console, stop)
    else:
        command = [sys.executable, "-m", "launch.sweep", *argv[1:], "--worker"]
        statuses = run_workers(command, sweep.jobs, stop)
        if any(statuses) and not stop.is_set():
            console.say(f"processes ended with {', '.join(map(str, statuses))}")
    write_tables(sweep.cells, sweep.out, sweep.published)
    left = unfinished(sweep)
    if left and stop.is_set():
        raise Interrupted(f"stopped with {len(left)} of {len(sweep.cells)} runs left; the same command goes on")
    console.say((sweep.out / "table.md").read_text())
    failed = [cell.name for cell in sweep.cells if failure_of(sweep.out, cell.name)]
    if failed:
        console.say(f"failed: {', '.join(failed)}; the same command tries them again")
    return 1 if failed or left else 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m launch.sweep", description=str(__doc__).partition("\n")[0])
    parser.add_argument("spec", type=Path, help="Python file with cells(scale)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    add_options(parser)
    return parser.parse_args(argv[1:])


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every sweep can be told."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data_dir", default="", help="where the data lie")
    parser.add_argument(
        "--scale", default="paper", help="how much of the paper's protocol: paper, cpu or the spec's own"
    )
    parser.add_argument("--only", nargs="*", default=[], help="cells whose name has one of these words")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="the I-th of N shares, from 1")
    parser.add_argument("--jobs", type=positive, default=1, help="processes on this machine")
    parser.add_argument("--devices", type=int, default=1, help="config.devices of every cell")
    parser.add_argument("--time_budget", type=float, default=0.0, help="seconds after which it saves and stops")


def positive(word: str) -> int:
    """A number from 1."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"got '{word}'; expected a whole number from 1")
    return int(word)


def shard(word: str) -> tuple[int, int]:
    """`3/8` as two numbers."""
    share, _, shares = word.partition("/")
    if not (share.isdigit() and shares.isdigit() and 1 <= int(share) <= int(shares)):
        raise argparse.ArgumentTypeError(f"got '{word}'; expected I/N with 1 <= I <= N, such as 3/8")
    return int(share), int(shares)


def select(cells: Sequence[Cell], args: argparse.Namespace) -> list[Cell]:
    """The cells that were asked for, told where the data are and on how many devices to run.

    Shard I of N is every N-th of them from the I-th on: whatever is finished already, no cell is in two shares.

    Raises:
      UserError: none is left, or two have one name.
    """
    chosen = [cell for cell in cells if not args.only or any(word in cell.name for word in args.only)]
    names = [cell.name for cell in chosen]
    if not chosen or len(set(names)) < len(names):
        raise UserError(
            f"SPEC has {len(names)} cells, {len(set(names))} names; expected one or more, each its own name"
        )
    for cell in chosen:
        cell.config.devices = args.devices
        cell.config.data.dir = args.data_dir or cell.config.data.dir
    share, shares = args.shard
    return chosen[share - 1 :: shares]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
