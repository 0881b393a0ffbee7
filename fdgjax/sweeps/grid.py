"""A sweep's cells from flags: methods, each with every combination of settings, on every unseen domain."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from fdgjax.config import make_config, read_config
from fdgjax.config.command_line import read_flags
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.evaluation.probability_figures import headline_keys
from fdgjax.experiments import found_data
from fdgjax.methods import METHODS
from fdgjax.sweeps.cells import Cell, as_name
from fdgjax.sweeps.options import readings, spanned
from fdgjax.utils.errors import UserError, unknown
from fdgjax.utils.words import words_of

ALL = "all"


def grid(args: argparse.Namespace) -> list[Cell]:
    """The cells METHOD-KEY=VALUE-TARGET; those that differ in the target alone are a group.

    Args:
      args: `config`, `methods`, `targets` and `seeds` of `add_grid`, `set` and `data_dir` of every sweep.

    Raises:
      UserError: an unknown method, preset, domain or key, an invalid value, data that cannot be found, or unseen
        domains elsewhere than in `targets`.
    """
    targets = [word for word in args.set if word.startswith("data.target=")]
    if args.targets and any(word != "data.target=" for word in targets):
        raise UserError("sweep got --targets and --set data.target; expected the unseen domains in one place")
    if several := [word for word in targets if len(readings(word)) > 1]:
        names = several[0].partition("=")[2]
        raise UserError(
            f"sweep got --set {several[0]}, whose runs would count as methods; expected --targets {names}, whose mean "
            "is taken"
        )
    rows = []
    for config in base_configs(args.config, split(args.methods)):
        config.data.dir = args.data_dir or config.data.dir
        config.seeds = config.seeds if args.seeds is None else args.seeds
        rows.append(Cell(config.method.name, config, group=config.method.name))
    return [cell for row in spanned(rows, args.set) for cell in by_target(row, split(args.targets))]


def add_grid(parser: argparse.ArgumentParser) -> None:
    """Adds the options that describe a sweep without a spec."""
    add = parser.add_argument
    add("--config", default="", metavar="[METHOD][:PRESET]", help="instead of SPEC: the config, as of fdgjax train")
    add("--methods", nargs="+", default=[], metavar="A,B", help="methods that run with the preset of --config")
    add(
        "--targets",
        nargs="+",
        default=[],
        metavar="A,B",
        help="domains that are unseen in turn, or all; else the config's",
    )
    add("--seeds", type=int, default=None, metavar="N", help="seeds of every run, trained in one program")


def split(words: Sequence[str]) -> list[str]:
    """The parts of `A,B` and of several words, each once."""
    return list(dict.fromkeys(part for word in words for part in words_of(word)))


def base_configs(word: str, methods: Sequence[str]) -> list[ConfigDict]:
    """The config of each method, by a word such as `fedavg:pacs`, `:pacs` (of all `methods`), or a config file's path.

    Raises:
      UserError: no method, or one in both places; an unknown method or preset.
    """
    own, _, preset = word.partition(":")
    if bool(own) == bool(methods):
        got = f"--config={word} and " + (f"--methods {','.join(methods)}" if methods else "no --methods")
        raise UserError(
            f"got {got}; expected methods in one place, such as --config=fedavg:{preset or 'pacs'} or "
            f"--config=:{preset or 'pacs'} --methods fedavg,fedprox"
        )
    if Path(own).is_file() or own.endswith(".py"):
        return [read_flags(["fdgjax sweep", f"--config={word}"])[0]]
    return [make_config(method, *([preset] if preset else [])) for method in methods or [own]]


def by_target(row: Cell, targets: Sequence[str]) -> list[Cell]:
    """The row's cells, one for each target; raises a `UserError` like `grid`."""
    config = row.config
    read_config(config)
    if not PROTOCOLS[config.data.protocol].unseen:
        if targets:
            raise UserError(
                f"--targets got {','.join(targets)}, but {row.name} runs by the protocol '{config.data.protocol}', "
                "which has no unseen domain; expected no --targets"
            )
        return [row._replace(group="", figures=figures_of(config))]
    names = chosen_targets(config, targets)
    group = row.group if len(names) > 1 else ""
    cells = []
    for target in names:
        changed = config.copy_and_resolve_references()
        changed.data.target = target
        read_config(changed)
        cells.append(Cell(f"{row.name}-{as_name(target)}", changed, figures_of(config), group))
    return cells


def chosen_targets(config: ConfigDict, targets: Sequence[str]) -> Sequence[str]:
    """The unseen domains; raises a `UserError` for one that the data set lacks, or data that cannot be found."""
    if not targets and config.data.target:
        return [config.data.target]
    typed = read_config(config)
    out = words_of(typed.data.excluded)
    names = [name for name in found_data(typed.data, typed.task).domain_names if name not in out]
    if wrong := [target for target in targets if target not in (*names, ALL)]:
        raise unknown("domain of --targets", wrong[0], [*names, ALL])
    if ALL in targets:
        return names
    return targets or names[:1]


def figures_of(config: ConfigDict) -> tuple[str, ...]:
    """The figures that a run of the config has in the table."""
    if METHODS[config.method.name].unlabelled:
        return ("probe_accuracy",)
    protocol = PROTOCOLS[config.data.protocol]
    scopes = ("id", "ood") if protocol.unseen else ("all", "avg")
    if TASKS[config.task].numeric:
        return tuple(f"{scope}_{name}" for name in ("rmse", "r2") for scope in scopes)
    return (*(f"{scope}_accuracy" for scope in scopes), *headline_keys(config.figures, scopes))
