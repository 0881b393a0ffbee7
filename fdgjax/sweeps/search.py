"""A search over a method's declared hyperparameters, by accuracy on data that the source domains held out.

    fdgjax search fedprox --out DIR --trials 20
    fdgjax search hfedf:pacs --out DIR --data_dir DATA --tune ema warmup client_learning_rate --jobs 2

The values are those that each method declares (`fdgjax methods`, `hyper(..., search=...)`) and the config's own, which
is the first trial; Optuna proposes the others, and trials that fall behind the median are given up (`--no_pruning` for
none). Each trial is a run in a folder of its own. Nothing of the unseen domain is looked at. Stopped or killed at any
moment, the same command goes on, an unfinished trial from its last checkpoint; several hosts with one folder share the
trials. `search.md` and `search.csv` in DIR list them. Needs `pip install 'fdgjax[search]'`.
"""

import argparse
import importlib.util
import json
import logging
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fdgjax.config import identity, make_config, read_config, to_plain
from fdgjax.config.command_line import set_keys
from fdgjax.door import door
from fdgjax.errors import UserError
from fdgjax.files import make_folder
from fdgjax.records.workdir import difference
from fdgjax.run.console import Console
from fdgjax.run.recorded import Interrupted
from fdgjax.sealed import read_checked_json, write_checked_json
from fdgjax.signals import save_on_signals
from fdgjax.sweeps.claims import claim
from fdgjax.sweeps.options import limit_time, positive
from fdgjax.sweeps.processes import run_workers, stop_with_parent
from fdgjax.sweeps.space import Search, refuse_unseen, space_of

LIBRARY = "optuna"


def parser() -> argparse.ArgumentParser:
    """The options of a search."""
    made = argparse.ArgumentParser(prog="fdgjax search", description=str(__doc__).partition("\n")[0])
    add = made.add_argument
    add("config", metavar="METHOD[:PRESET]", help="the config whose method is tuned, as of --config")
    add("--out", type=Path, required=True, help="folder of the trials")
    add("--trials", type=positive, default=20, metavar="N", help="how many in all, the config's own among them")
    add("--tune", nargs="+", default=[], metavar="KEY", help="keys of config.method; all that are numbers without it")
    add("--data_dir", default="", help="where the data lie")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of the config, such as rounds=20 seeds=3")
    add("--seed", type=int, default=0, help="of what is proposed")
    add("--no_pruning", action="store_true", help="trains every trial to its end")
    add("--jobs", type=positive, default=1, metavar="N", help="processes on this machine")
    add(
        "--wait",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="for trials that others hold; else until all end",
    )
    add("--time_budget", type=float, default=0.0, metavar="SECONDS", help="after which it saves and stops")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return made


@door
def main(argv: Sequence[str]) -> int:
    """Runs the search.

    Returns:
      The exit status: 0 when all trials are done or left to others, 1 when some are not or none succeeded, 2 for a
      mistake in the input, 128 + signal number when stopped by one, and 3 when time ran out.
    """
    args = parser().parse_args(argv[1:])
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if importlib.util.find_spec(LIBRARY) is None:
        raise UserError(f"search got no library {LIBRARY}; expected it to be installed; pip install 'fdgjax[search]'")
    from fdgjax.sweeps.trials import work  # here, as it loads Optuna

    console, stop = Console(), threading.Event()
    received = save_on_signals(stop)
    limit_time(stop, args.time_budget)
    try:
        search = read_search(args)
        if args.worker:
            stop_with_parent(stop)
            work(search, console, stop)
            return 0
        return lead(search, ["search", *argv[1:]], console, stop)
    except Interrupted as news:
        if not args.worker:
            console.say(str(news))
        return 128 + received[0] if received else 3


def lead(search: Search, command: Sequence[str], console: Console, stop: threading.Event) -> int:
    """Runs the whole search, alone or by workers, and prints the outcome. Returns the exit status.

    Raises:
      Interrupted: `stop` was set before all was done.
    """
    from fdgjax.sweeps.trial_table import write_table
    from fdgjax.sweeps.trials import counted, left, left_over, open_study, work

    keep_identity(search)
    statuses: list[int] = []
    if search.jobs == 1:
        work(search, console, stop)
    else:
        open_study(search)
        statuses = run_workers([sys.executable, "-m", "fdgjax", *command, "--worker"], search.jobs, stop)
        if any(statuses) and not stop.is_set():
            console.say(f"processes ended with status {', '.join(map(str, statuses))}")
    study = open_study(search)
    best = write_table(search, counted(study))
    if left(search, study) and stop.is_set():
        raise Interrupted(left_over(search, study))
    console.say((search.out / "search.md").read_text())
    left_to_others = math.isfinite(search.wait) and not any(statuses)
    return 0 if (best or left_to_others) and (left_to_others or not left(search, study)) else 1


def read_search(args: argparse.Namespace) -> Search:
    """The search of the arguments.

    Raises:
      UserError: no such method, preset, key or value, a method without labels, a selection that looks at the unseen
        domain, or a hyperparameter that declares no values.
    """
    method, _, preset = args.config.partition(":")
    config = make_config(method, *([preset] if preset else []))
    set_keys(config, args.set)
    config.data.dir = args.data_dir or config.data.dir
    refuse_unseen(config)
    space = space_of(config, args.tune)
    words = [f"--config={args.config}", *(f"--config.{word}" for word in args.set)]
    return Search(config, space, args.out, args.trials, args.seed, not args.no_pruning, words, args.jobs, args.wait)


def keep_identity(search: Search) -> None:
    """Writes what the folder's search is, or raises a `UserError` where it is another."""
    ours: Mapping[str, Any] = json.loads(
        json.dumps(
            {
                "config": identity(to_plain(read_config(search.config))),
                "tune": search.space,
                "seed": search.seed,
                "pruning": search.pruning,
            }
        )
    )
    file = search.out / "search.json"
    make_folder(search.out)
    with claim(search.out, ".asking", wait=True):
        if not file.exists():
            write_checked_json(file, ours)
        elif found := difference(ours, read_checked_json(file)):
            key, own, held = found
            raise UserError(
                f"--out {search.out} holds another search: {key} is {held} there and {own} here; choose another --out, "
                "or repeat that search's command to continue it"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
