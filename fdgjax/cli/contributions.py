"""What each client contributes: the accuracy on each domain with every coalition of the clients.

    fdgjax contributions --config=fedavg:pretrained_pacs --config.data.dir=DATA --seeds 3 --out DIR
    fdgjax contributions --config=fedavg --config.rounds=30 --out DIR --orders 20

Each domain but the unseen one is a client. For K clients 2^K - 1 federations are trained, one for each coalition of
clients; with more than six clients (or --orders), those that random orders of the clients pass through, and those of
all clients but one. From these follow each client's Shapley value for each domain (exact, or an estimate from the
orders), and its influence: the accuracy with all clients minus that without this client. DIR gets `contributions.md`,
`contributions.json`, a picture, and a folder for each run. If stopped or killed at any moment, the same command goes
on.
"""

import argparse
from collections.abc import Sequence
from functools import partial

from ml_collections import ConfigDict

from fdgjax.api.contributions import as_json, read_contributions
from fdgjax.cli.sweep import planned, train_cells
from fdgjax.config.command_line import set_keys
from fdgjax.report.contributions import contributions_markdown, contributions_picture
from fdgjax.run.batched_runs import LARGEST
from fdgjax.run.console import Console
from fdgjax.sweeps.coalitions import EXACT, ORDERS, Coalitions, coalitions_of
from fdgjax.sweeps.grid import base_configs
from fdgjax.sweeps.options import add_cells, read_arguments, single_values, sweep_of
from fdgjax.sweeps.status import failure_of
from fdgjax.sweeps.work import Sweep, left_over, unfinished
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.errors import check_library, printable
from fdgjax.utils.files import write_bytes, write_text


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="fdgjax contributions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fdgjax contributions --config=METHOD[:PRESET] --out DIR [--config.KEY=VALUE ...] [options]",
    )
    add = made.add_argument
    add("--config", required=True, metavar="METHOD[:PRESET]", help="the federation of all clients, as of fdgjax train")
    add(
        "--seeds",
        type=positive_number,
        metavar="N",
        help="seeds of every run, trained in one program; else the config's",
    )
    add(
        "--orders",
        type=int,
        default=0,
        metavar="N",
        help=f"random orders of the clients; by default {ORDERS} for more than {EXACT} clients",
    )
    add_cells(made, LARGEST)
    return made


@command
def main(argv: Sequence[str]) -> int:
    """Measures the contributions.

    Returns:
      The exit status: 0 when they are measured or runs are left to other shares alone, 1 when others are left or some
      failed, 2 for a mistake in the input, 128 + signal number when stopped by one, and 3 when time ran out.
    """
    args = read_arguments(parser(), argv[1:])
    game = coalitions_of(config_of(args, single_values(args.set)), args.orders)
    sweep = sweep_of(list(game.cells.values()), args)
    if args.dry_run:
        print("\n".join(planned(sweep)))
        return 0
    check_library("contributions.png", "matplotlib", "report")
    return train_cells(sweep, partial(end, game, sweep), args, ["contributions", *argv[1:]])


def config_of(args: argparse.Namespace, words: Sequence[str]) -> ConfigDict:
    """The config of all clients; runs log to their own files alone unless asked."""
    (config,) = base_configs(args.config, [])
    config.seeds, config.writers = args.seeds or config.seeds, ""
    config.data.dir = args.data_dir or config.data.dir
    set_keys(config, words)
    return config


def end(game: Coalitions, sweep: Sweep, console: Console, stopped: bool) -> int:
    """Writes the contributions and prints them. Returns the exit status.

    Raises:
      Interrupted: stopped before all was done.
    """
    left = left_over(sweep, sweep.shown, stopped)
    failed = [cell.name for cell in sweep.shown if failure_of(sweep.out, cell.name)]
    if left or failed:
        names = ", ".join([*failed, *(cell.name for cell in left)])
        console.say(f"{len(failed)} runs failed, {len(left)} are left: {names}; the same command goes on")
        return 1 if failed or unfinished(sweep) else 0
    found = as_json(read_contributions(game, sweep.out))
    text = contributions_markdown(found)
    write_checked_json(sweep.out / "contributions.json", found)
    write_text(sweep.out / "contributions.md", text)
    write_bytes(sweep.out / "contributions.png", contributions_picture(found))
    console.say(text)
    console.say(f"contributions.md, contributions.json and contributions.png in {printable(sweep.out)}")
    return 0
