"""Command-line options of a sweep, and the cells of a spec that they select."""

import argparse
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fdgjax.config import INCIDENTAL, read_config
from fdgjax.config.command_line import check_words, is_override, overrides_in, set_keys
from fdgjax.run.records import Workdir, check_workdir
from fdgjax.sweeps.cells import Cell, Figures, as_name, check_names
from fdgjax.sweeps.share import share_of
from fdgjax.sweeps.work import Sweep
from fdgjax.utils.command import positive_number, seconds
from fdgjax.utils.errors import LISTED, UserError
from fdgjax.utils.words import quoted, values_of

NOT_REDUCING = INCIDENTAL | {"data.split_seed", "model.pretrained"}
"""Keys that do not change a paper's protocol; of the weights it is the location."""

PAPER = "paper"
"""The scale of a spec's whole protocol."""


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all commands of many runs share."""
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the runs")
    add("--data_dir", default="", help="where the data lie")
    add(
        "--set",
        nargs="*",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keys of every run's config, such as rounds=20; a value with commas stands in double quotes. "
        "--config.KEY=VALUE, as of fdgjax train, does the same without quotes",
    )
    add("--shard", default="1/1", metavar="I/N", help="the I-th of N shares, from 1; auto: by SLURM array task or pod")
    add("--jobs", type=positive_number, default=1, metavar="N", help="processes on this machine")
    add("--time_budget", type=seconds, default=0.0, metavar="SECONDS", help="time after which it saves and stops")
    add("--worker", action="store_true", help=argparse.SUPPRESS)


def add_cells(parser: argparse.ArgumentParser, together: int) -> None:
    """Adds the options of commands that train cells, as many of them as `together` as one program if nothing is
    asked."""
    add_common(parser)
    parser.set_defaults(only=[], devices=None)
    parser.add_argument("--dry-run", action="store_true", help="lists the runs and trains nothing")
    parser.add_argument(
        "--together",
        type=positive_number,
        default=together,
        metavar="N",
        help=f"runs per program, if they differ in numbers or unseen domains alone ({together})",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every sweep."""
    add_cells(parser, together=1)
    add = parser.add_argument
    add("--scale", default=PAPER, help="a scale of the spec: paper, the whole protocol; cpu, or others that it has")
    add("--only", nargs="*", action="extend", default=[], metavar="WORD", help="runs whose names have one of the words")
    add("--devices", type=positive_number, metavar="N", help="config.devices of every run; else the config's, or 1")


def read_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command of many runs, in whose `set` are `--config.KEY=VALUE`, too: a comma there is the
    value's own.

    Raises:
      UserError: a word that is no option.
    """
    args, rest = parser.parse_known_args([word for word in words if not is_override(word)])
    if rest:
        check_words(rest)
        raise UserError(f"{parser.prog} got '{rest[0]}', which is no option; see --help")
    pairs = [word.partition("=") for word in overrides_in(words)]
    args.set = [*(key + equals + quoted(value) for key, equals, value in pairs), *args.set]
    return args


def sweep_of(cells: Sequence[Cell], args: argparse.Namespace, published: Figures = MappingProxyType({})) -> Sweep:
    """The selected cells, with the data folder and the number of devices in their configs; shown are, too, others that
    have a run.

    Share I of N is every N-th of them from the I-th on: shares do not overlap, and do not depend on which cells are
    finished.

    Raises:
      UserError: no cell is selected, two cells have the same name, a name is none of a folder, or there is no such
        share.
    """
    share = share_of(args.shard, os.environ)
    chosen = [cell for cell in cells if not args.only or any(word in cell.name for word in args.only)]
    if not cells:
        raise UserError("the spec has no cells; expected at least one")
    if not chosen:
        every = ", ".join(cell.name for cell in cells[:LISTED]) + (", ..." if len(cells) > LISTED else "")
        raise UserError(
            f"no run's name has {' or '.join(args.only)} (--only); expected a part of {every}; --dry-run lists them"
        )
    for cell in cells:
        cell.config.devices = args.devices or cell.config.devices or 1
        cell.config.data.dir = args.data_dir or cell.config.data.dir
    names = {cell.name for cell in chosen}
    shown = [cell for cell in cells if cell.name in names or is_run_of(cell, args.out / cell.name)]
    check_names(shown)
    shown = without_partial_groups(cells, shown)
    selected = [cell for cell in shown if cell.name in names]
    mine = selected[share.number - 1 :: share.shares]
    return Sweep(mine, shown, args.out, published, args.jobs, args.together)


def is_run_of(cell: Cell, folder: Path) -> bool:
    """Whether a folder has a run of the cell."""
    if not Workdir(folder).config.exists():
        return False
    try:
        check_workdir(folder, read_config(cell.config))
    except UserError:
        return False
    return True


def without_partial_groups(cells: Sequence[Cell], chosen: Sequence[Cell]) -> list[Cell]:
    """The chosen cells, taken out of groups that are chosen only in part, as published means are over whole groups."""
    partial = {cell.group for cell in cells if all(cell is not one for one in chosen)}
    return [cell._replace(group="") if cell.group in partial else cell for cell in chosen]


def spanned(cells: Sequence[Cell], words: Sequence[str]) -> list[Cell]:
    """The cells with `KEY=VALUE` in their configs: each of them for every combination of the values `KEY=A,B,...`,
    which then are part of its name. A change of the protocol is noted in `reduced`.

    Raises:
      UserError: no such key, one that is given twice, a value of another type, or one value written in two ways.
    """
    keys = [word.partition("=")[0] for word in words]
    if doubled := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise UserError(
            f"--set got {doubled[0]} {keys.count(doubled[0])} times; expected it once; {doubled[0]}=A,B runs both"
        )
    for word in words if cells else ():
        each = [(one.word, assign(cells[0], (one,)).config.to_dict()) for one in readings(word)]
        for (a, first), (b, second) in itertools.combinations(each, 2):
            if first == second:
                raise UserError(f"--set got {a} and {b}, which are the same; expected different values")
    return [assign(cell, chosen) for chosen in itertools.product(*map(readings, words)) for cell in cells]


class Setting(NamedTuple):
    """A key of the config set by `word`, `KEY=VALUE`; varied: whether other cells have other values."""

    word: str
    varied: bool


def readings(word: str) -> list[Setting]:
    """`KEY=A,B` as the settings `KEY=A` and `KEY=B`; a value in double quotes may contain commas. Raises a `UserError`
    for a line break outside of quotes."""
    key, equals, text = word.partition("=")
    values = values_of(text)
    if not equals or not values:
        return [Setting(word, varied=False)]
    return [Setting(f"{key}={value}", varied=len(values) > 1) for value in values]


def single_values(words: Sequence[str]) -> list[str]:
    """The words `KEY=VALUE` of a command that trains one config; raises a `UserError` for several values of a key."""
    for word in words:
        if len(readings(word)) > 1:
            raise UserError(
                f"--set got several values, '{word}'; expected one; a value with commas stands in double quotes"
            )
    return [setting.word for word in words for setting in readings(word)]


def assign(cell: Cell, settings: Sequence[Setting]) -> Cell:
    """A copy of the cell with the settings; see `spanned`."""
    config, words = cell.config.copy_and_resolve_references(), [setting.word for setting in settings]
    try:
        set_keys(config, words)
    except UserError as error:
        raise UserError(f"the run {cell.name}: {error}") from None
    changes = [word for word in words if word.partition("=")[0] not in NOT_REDUCING]
    # The names stay METHOD-TARGET or GROUP-..., by which runs are compared.
    suffix = "".join(f"-{as_name(setting.word)}" for setting in settings if setting.varied)
    grouped = cell.group and cell.name.startswith(f"{cell.group}-")
    head = cell.group if grouped else cell.name.removesuffix(f"-{as_name(cell.config.data.target)}")
    return cell._replace(
        name=head + suffix + cell.name[len(head) :],
        config=config,
        group=cell.group + suffix if cell.group else "",
        reduced=", ".join([cell.reduced] * bool(cell.reduced) + changes),
    )
