"""Command-line options of a sweep, and the cells of a spec that they select."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.config.command_line import set_keys
from fdgjax.sweeps.cells import Cell
from fdgjax.sweeps.share import share_of
from fdgjax.utils.errors import UserError

NOT_REDUCING = frozenset(
    {
        *("seed", "seeds", "model.pretrained"),
        *("seed_axis", "client_axis", "chunk", "unroll", "eval_batch_size", "checkpoint_every"),
    }
)
"""Keys that do not change a paper's protocol: the seeds, which verdicts count, the location of weights, speed, memory,
and checkpoints."""


class Selected(NamedTuple):
    """The selected cells, and those of them in this share."""

    all: list[Cell]
    share: list[Cell]


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all commands of many runs share."""
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the runs")
    add("--data_dir", default="", help="where the data lie")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys of every run's config, such as rounds=20")
    add("--shard", default="1/1", metavar="I/N", help="the I-th of N shares, from 1; auto: a SLURM array's, a pod's")
    add("--jobs", type=positive_number, default=1, metavar="N", help="processes on this machine")
    add("--time_budget", type=float, default=0.0, metavar="SECONDS", help="after which it saves and stops")
    add("--worker", action="store_true", help=argparse.SUPPRESS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every sweep."""
    add_common(parser)
    add = parser.add_argument
    add("--scale", default="paper", help="how much of the paper's protocol: paper or cpu")
    add("--only", nargs="*", default=[], metavar="WORD", help="cells whose name has one of these words")
    add(
        "--together",
        type=positive_number,
        default=1,
        metavar="N",
        help="runs as one program that differ in numbers alone",
    )
    add("--devices", type=positive_number, default=1, metavar="N", help="config.devices of every cell")


def positive_number(word: str) -> int:
    """A whole number, at least 1."""
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"got '{word}'; expected a whole number from 1")
    return int(word)


def selected_cells(cells: Sequence[Cell], args: argparse.Namespace) -> Selected:
    """The selected cells, with the data folder, the number of devices and all other set keys in their configs.

    Share I of N is every N-th of them from the I-th on: shares do not overlap, and do not depend on which cells are
    finished.

    Raises:
      UserError: no cell is selected, two cells have the same name, a key or value is invalid, or there is no such
        share.
    """
    share = share_of(args.shard, os.environ)
    chosen = [cell for cell in cells if not args.only or any(word in cell.name for word in args.only)]
    names = [cell.name for cell in chosen]
    if not chosen or len(set(names)) < len(names):
        raise UserError(
            f"SPEC has {len(names)} cells, {len(set(names))} names; expected one or more, each its own name"
        )
    chosen = [assign(cell, args.set) for cell in without_partial_groups(cells, chosen)]
    for cell in chosen:
        cell.config.devices = args.devices
        cell.config.data.dir = args.data_dir or cell.config.data.dir
    return Selected(chosen, chosen[share.number - 1 :: share.shares])


def without_partial_groups(cells: Sequence[Cell], chosen: Sequence[Cell]) -> list[Cell]:
    """The chosen cells, taken out of groups that are chosen only in part, as published means are over whole groups."""
    partial = {cell.group for cell in cells if all(cell is not one for one in chosen)}
    return [cell._replace(group="") if cell.group in partial else cell for cell in chosen]


def assign(cell: Cell, words: Sequence[str]) -> Cell:
    """The cell with `KEY=VALUE` in its config; a change of the protocol is noted in `reduced`.

    Raises:
      UserError: no such key, or a value of another type.
    """
    set_keys(cell.config, words)
    changes = [word for word in words if word.partition("=")[0] not in NOT_REDUCING]
    return cell._replace(reduced=", ".join([cell.reduced] * bool(cell.reduced) + changes))
