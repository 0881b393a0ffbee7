"""A search over a method's declared hyperparameters, by a figure of held-out data of the source domains.

    fdgjax search --config=fedprox --out DIR --trials 20
    fdgjax search --config=hfedf:pacs --out DIR --data_dir DATA --tune ema warmup client_learning_rate --jobs 2
    fdgjax search --config=fedprox --out DIR --tune mu=log:0.001..1 client_learning_rate=0.001,0.003

The search space is the values that the method declares (`hyper(..., search=...)`) or those of `--tune`. The config's
own values are the first trial; Optuna proposes the others. Trials that fall behind the median are stopped early (none
with `--no_pruning`). Each trial is a run in its own folder. No data of the unseen domain are used, and no figures of it
are shown. If stopped or killed at any moment, the same command continues the search, an unfinished trial from its last
checkpoint; hosts that share one folder split the trials, each with its own `--shard`. `search.md` and `search.csv` in
DIR list the trials. Needs `pip install 'fdgjax[search]'`.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fdgjax.cli.subcommands import files_of_with
from fdgjax.config import completed, experiment_identity, read_config, to_plain
from fdgjax.config.command_line import set_keys
from fdgjax.evaluation.probability_figures import with_figure
from fdgjax.evaluation.selection import accuracy_key
from fdgjax.run.console import Console
from fdgjax.run.records.workdir import first_difference
from fdgjax.run.runner import Interrupted
from fdgjax.sweeps.grid import base_configs
from fdgjax.sweeps.options import add_common, read_arguments, single_values
from fdgjax.sweeps.processes import Job, conduct
from fdgjax.sweeps.share import share_of
from fdgjax.sweeps.space import ACCURACY, Range, Search, check_figure, refuse_unseen, space_of
from fdgjax.sweeps.status import hold
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.command import command, parser_of, positive_number, whole_number, with_words
from fdgjax.utils.errors import UserError, check_library
from fdgjax.utils.files import make_folder

LIBRARY = "optuna"


def parser() -> argparse.ArgumentParser:
    """The options of a search."""
    made = parser_of("search", __doc__)
    add = made.add_argument
    add("method", nargs="?", default="", metavar="METHOD[:PRESET]", help="short for --config=METHOD[:PRESET]")
    add("--config", default="", metavar="METHOD[:PRESET]", help="the config whose method is tuned, as of fdgjax train")
    add_common(made)
    add("--trials", type=positive_number, default=20, metavar="N", help="how many in all, the config's own among them")
    add(
        "--tune",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY[=VALUES]",
        help="keys of config.method, else all that are numbers; VALUES instead of the declared: A,B or [log:]LOW..HIGH",
    )
    add(
        "--figure",
        default="",
        metavar="KEY",
        help=f"figure on held-out data to compare trials by ({ACCURACY}; for a regression, id_rmse); also id_auroc and "
        "others of config.figures",
    )
    add("--seed", type=whole_number, default=0, help="of what is proposed")
    add("--no_pruning", action="store_true", help="trains every trial to its end")
    return made


@command
def main(argv: Sequence[str]) -> int:
    """Runs the search.

    Returns:
      The exit status: 0 when all trials are done or left to other shares, 1 when some are not or none succeeded, 2 for
      a mistake in the input, 128 + signal number when stopped by one, and 3 when time ran out.
    """
    args = read_arguments(parser(), argv[1:])
    check_library("search", LIBRARY, "search")
    from fdgjax.sweeps.trials import work_on_trials  # here, as it loads Optuna

    search = read_search(args)
    job = Job(partial(begin, search), partial(work_on_trials, search), partial(end, search))
    return conduct(job, args, ["search", *argv[1:]])


def begin(search: Search) -> None:
    """Makes the study; raises a `UserError` if the folder holds another search."""
    from fdgjax.sweeps.trials import open_study

    keep_identity(search)
    open_study(search)


def end(search: Search, console: Console, stopped: bool) -> int:
    """Writes the tables and prints the outcome. Returns the exit status.

    Raises:
      Interrupted: the search was stopped before all trials were done.
    """
    from fdgjax.sweeps.trial_table import write_table
    from fdgjax.sweeps.trials import distinct_trials, left, open_study, stopped_search

    study = open_study(search)
    with hold(search.out, ".tables", wait=True):
        trials = distinct_trials(study)
        best, unfinished = write_table(search, trials), left(search, study)
    if unfinished and stopped:
        raise Interrupted(stopped_search(search, study))
    console.say((search.out / "search.md").read_text())
    if unfinished:
        console.say(f"{unfinished} trials are held or were lost by other processes; the same command goes on")
    others = any(not trial.state.is_finished() for trial in trials)
    return 1 if unfinished or not (best or others) else 0


def read_search(args: argparse.Namespace) -> Search:
    """The search that the arguments request.

    Raises:
      UserError: an unknown method, preset or key, an invalid value or shard, a method without labels, a selection that
        uses the unseen domain, or a hyperparameter that declares no values.
    """
    if bool(args.method) == bool(args.config):
        got = f"{args.method} and --config={args.config}" if args.method else "no method"
        raise UserError(f"search got {got}; expected one, such as --config=fedprox")
    named = args.config or args.method
    (config,) = base_configs(named, [])
    fixed = single_values(args.set)
    before = config.figures
    set_keys(config, fixed)
    figure = check_figure(args.figure or accuracy_key(config.task, "id"), config.task)
    config.figures = with_figure(config.figures, figure)
    if config.figures != before:
        fixed = [*(word for word in fixed if not word.startswith("figures=")), f"figures={config.figures}"]
    config.data.dir = args.data_dir or config.data.dir
    share = share_of(args.shard, os.environ)
    refuse_unseen(config)
    space = space_of(config, args.tune)
    data = [f"--config.data.dir={args.data_dir}"] if args.data_dir else []
    keys = [f"--config.{word}" for word in fixed]
    words = ["fdgjax", *with_words(files_of_with()), "train", f"--config={named}", *keys, *data]
    return Search(config, space, args.out, args.trials, args.seed, not args.no_pruning, words, args.jobs, share, figure)


def keep_identity(search: Search) -> None:
    """Records the search's settings in its folder; raises a `UserError` if the folder holds another search."""
    ours: Mapping[str, Any] = json.loads(
        json.dumps(
            {
                "config": experiment_identity(to_plain(read_config(search.config))),
                "tune": {key: str(v) if isinstance(v, Range) else v for key, v in search.space.items()},
                "seed": search.seed,
                **({} if search.figure == ACCURACY else {"figure": search.figure}),
                "pruning": search.pruning,
            }
        )
    )
    file = search.out / "search.json"
    make_folder(search.out)
    with hold(search.out, ".identity", wait=True):
        if not file.exists():
            write_checked_json(file, ours)
        elif found := first_difference(ours, with_later_keys(read_checked_json(file))):
            key, own, held = found
            raise UserError(
                f"--out {search.out} holds another search: {key} is {held} there and {own} here; choose another --out, "
                "or repeat that search's command to continue it"
            )


def with_later_keys(held: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search, keys of the config that were added to the package since it began at their defaults."""
    return {**held, "config": json.loads(json.dumps(experiment_identity(completed(held["config"]))))}
