"""Chooses a method for one's own data: each training domain is unseen in turn, for every candidate.

    fdgjax choose --config=:pretrained_folder --config.data.dir=DATA --out DIR [--methods fedavg,fedprox] [--train]
    fdgjax choose --config=:rotated_digits --config.rounds=30 --out DIR --dry-run

DATA/<domain>/<class>/*.jpg. A method's score is its mean accuracy over the domains left out. A domain given as
--config.data.target stays out of all runs of the choice; a preset's own target does not count as given. Where the
server alone has labels (--config.data.protocol=labelled_server) its domain is never left out. DIR gets `choice.md` and
`choice.json`: the scores, the methods that cannot be told from the best, the recommended one (the cheapest of these
that is not behind the first), and what to expect on a new domain. --train then trains the recommended method on all
domains, in DIR/trained-METHOD. Each run has its own folder in DIR. If stopped or killed at any moment, the same command
goes on.
"""

import argparse
import shlex
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ml_collections import ConfigDict

from fdgjax.cli.subcommands import files_of_with
from fdgjax.cli.sweep import planned, train_cells
from fdgjax.config import read_config
from fdgjax.config.command_line import set_keys
from fdgjax.evaluation.best_set import SCORES
from fdgjax.evaluation.figure_kinds import figure_kind
from fdgjax.evaluation.probability_figures import with_figure
from fdgjax.evaluation.selection import accuracy_key
from fdgjax.inference.left_out import keep_left_out
from fdgjax.inference.safeguards import keep_safeguards
from fdgjax.run.batched_runs import LARGEST
from fdgjax.run.console import Console
from fdgjax.run.reopen import rebuilt
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.choice import no_choice, read_choice
from fdgjax.sweeps.choice_record import CHOICE, kept_choice, write_choice
from fdgjax.sweeps.choosing import (
    Choosing,
    cells_of,
    choosing_of,
    default_methods,
    protocol_of,
    run_name,
    trained_config,
)
from fdgjax.sweeps.grid import base_configs, figures_of, split
from fdgjax.sweeps.options import add_cells, read_arguments, single_values, sweep_of
from fdgjax.sweeps.status import failure_line
from fdgjax.sweeps.work import Sweep, left_over, unfinished
from fdgjax.utils.command import command, positive_number, with_words
from fdgjax.utils.errors import UserError, printable

LEFT_TO_OTHERS = -1
"""Instead of an exit status: this share is done, and others have runs left; the last of them chooses, and trains."""


def parser() -> argparse.ArgumentParser:
    """The options of a choice."""
    made = argparse.ArgumentParser(
        prog="fdgjax choose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fdgjax choose --config=[METHOD]:PRESET --out DIR [--config.KEY=VALUE ...] [options]",
    )
    add = made.add_argument
    add("--config", default="", metavar="[METHOD]:PRESET", help="the data and settings of all runs, as of fdgjax train")
    add(
        "--methods", nargs="+", default=[], metavar="A,B", help="candidates, else all that fit the data and the network"
    )
    add("--seeds", type=positive_number, default=3, metavar="N", help="seeds of every run (3)")
    add("--search", type=int, default=0, metavar="N", help="also N draws of each method's search values")
    add("--by", choices=list(SCORES), default="mean", help="the score over domains")
    what = "key of the summaries to compare, such as a loss, ece or ood_auroc; by default ood_accuracy, or ood_rmse"
    add("--figure", default="", metavar="KEY", help=what)
    add("--train", action="store_true", help="then trains the recommended method on all domains")
    add_cells(made, LARGEST)
    return made


class Asked(NamedTuple):
    """What a command asks for: the choice, its runs, and the arguments."""

    choosing: Choosing
    sweep: Sweep
    args: argparse.Namespace
    commands: dict[str, str]


@command
def main(argv: Sequence[str]) -> int:
    """Chooses.

    Returns:
      The exit status: 0 when the choice is made or runs are left to other shares alone, 1 when others are left or none
      succeeded, 2 for a mistake in the input, 128 + signal number when stopped by one, and 3 when time ran out.
    """
    args = read_arguments(parser(), argv[1:])
    asked = read_asked(args, single_values(args.set), argv[1:])
    if args.dry_run:
        unfit = [f"  left out, {name}: {why}" for name, why in asked.choosing.unfit.items()]
        print("\n".join([*unfit, *planned(asked.sweep)]))
        return 0
    sweep, begun = asked.sweep, time.monotonic()
    status = train_cells(sweep, partial(end, asked), args, ["choose", *argv[1:]])
    if status == LEFT_TO_OTHERS:
        return 0
    if status or not args.train or args.worker:
        return status
    last = training(asked)
    # A budget of 0 is none.
    left = args.time_budget and max(args.time_budget - (time.monotonic() - begun), 1.0)
    alone = argparse.Namespace(**vars(args) | {"jobs": 1, "time_budget": left})
    return train_cells(last, partial(trained, last, asked.choosing.domains), alone, [])


def read_asked(args: argparse.Namespace, words: Sequence[str], argv: Sequence[str]) -> Asked:
    """What the arguments ask for; `words`: the keys that they set.

    Raises:
      UserError: an unknown method, preset, domain, figure or key, an invalid value, or data that cannot be found.
    """
    keys = dict(word.partition("=")[::2] for word in words)
    methods = split(args.methods)
    only_fit = not methods and not args.config.partition(":")[0]
    chosen = methods or (default_methods(protocol_of(args.config.partition(":")[2], keys)) if only_fit else [])
    if not args.config and not methods:
        raise UserError("choose got no --config; expected --config=:PRESET, such as :pretrained_folder; see --help")
    configs = [with_keys(config, args, words) for config in base_configs(args.config, chosen)]
    args.figure = figure_of(args, configs[0])
    choosing = choosing_of(configs, keys.get("data.target", ""), draws=args.search, only_fit=only_fit)
    sweep = sweep_of(cells_of(choosing), args)
    if args.train:
        for candidate in choosing.candidates:
            read_config(trained_config(candidate.config, choosing.target))
    own = ["fdgjax", *with_words(files_of_with()), "choose", *argv]
    plain = [word for word in own if word not in ("--train", "--worker")]
    return Asked(choosing, sweep, args, {"choose": shlex.join(plain), "train": shlex.join([*plain, "--train"])})


def with_keys(config: ConfigDict, args: argparse.Namespace, words: Sequence[str]) -> ConfigDict:
    """A method's config with the command's keys; runs of a choice log to their own files alone unless asked."""
    config.seeds, config.writers = args.seeds, ""
    config.data.target = ""
    config.data.dir = args.data_dir or config.data.dir
    set_keys(config, words)
    config.figures = with_figure(config.figures, figure_of(args, config))
    return config


def figure_of(args: argparse.Namespace, config: ConfigDict) -> str:
    """The key of the figure that is compared; raises a `UserError` for one that is no figure."""
    key: str = args.figure or accuracy_key(config.task, "ood")
    figure_kind(key)
    return key


def end(asked: Asked, console: Console, stopped: bool) -> int:
    """Writes the choice and prints it. Returns the exit status, or `LEFT_TO_OTHERS`.

    Raises:
      Interrupted: stopped before all was done.
    """
    sweep, args = asked.sweep, asked.args
    left = left_over(sweep, sweep.shown, stopped)
    if left:
        names = ", ".join(cell.name for cell in left)
        console.say(f"{len(left)} runs are left to other shares or processes: {names}; then the same command chooses")
        return 1 if unfinished(sweep) else LEFT_TO_OTHERS
    choice = read_choice(asked.choosing, sweep.shown, args.out, args.figure, args.by, asked.commands)
    if choice is None:
        console.say(no_choice(sweep.shown, args.out))
        return 1
    write_choice(choice, args.out)
    console.say(f"{choice}\nwritten to {printable(args.out / CHOICE)} and choice.md")
    return 0


def training(asked: Asked) -> Sweep:
    """The run of `--train`, as a sweep of one; see `trained_config`."""
    sweep, recommended = asked.sweep, kept_choice(asked.args.out / CHOICE).recommended
    (candidate,) = (one for one in asked.choosing.candidates if one.name == recommended)
    config = trained_config(candidate.config, asked.choosing.target)
    config.data.dir, config.devices = sweep.shown[0].config.data.dir, sweep.shown[0].config.devices
    cell = Cell(f"trained-{recommended}", config, figures_of(config))
    return sweep._replace(cells=[cell], shown=[*sweep.shown, cell], jobs=1)


def trained(sweep: Sweep, domains: Sequence[str], console: Console, stopped: bool) -> int:
    """Keeps what the trained run's predictions are compared with, and how these did on each of the domains in the runs
    of the choice, and says where it is. Returns the exit status; raises like `end`."""
    (cell,) = sweep.cells
    if reason := failure_line(sweep.out, cell.name):
        console.say(f"{cell.name} failed: {reason}")
        return 1
    if left_over(sweep, sweep.cells, stopped):
        console.say(f"held or lost by other processes: {cell.name}; once these have ended, the same command goes on")
        return 1
    path, recommended = sweep.out / cell.name, cell.name.removeprefix("trained-")
    data_dir = cell.config.data.dir
    keep_safeguards(rebuilt(path, data_dir), path)
    keep_left_out(path, {name: sweep.out / run_name(recommended, name) for name in domains}, data_dir)
    console.say(f"trained in {printable(path)}: fdgjax predict, export and report read it")
    return 0
