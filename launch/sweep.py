"""Every cell of a table, one run after another, resumable.

    python -m launch.sweep launch/specs/uap_rotated_mnist.py --out DIR [--data_dir DATA] [--preset NAME] [--only WORDS]

SPEC is a Python file with `cells(preset: str) -> Sequence[Cell]`. Each cell is a run in a folder of its own. A finished
cell is skipped, a stopped one goes on from its checkpoint, and one that failed is listed, and tried again next time.
After each cell `table.md` in DIR is written anew: our figure, the published one where there is one, their difference.
"""

import argparse
import importlib.util
import json
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from fdgjax.config import read_config
from fdgjax.console import Console
from fdgjax.errors import UserError
from fdgjax.files import write_text
from fdgjax.main import remember_compilations, save_on_signals, split_cpu
from fdgjax.run import Interrupted, run


class Cell(NamedTuple):
    """One run of a sweep.

    name: its folder, unique. config: as a config file returns it. published: the paper's accuracy in [0, 1] for
    `figure`, a key of `summary.json`; None where there is none.
    """

    name: str
    config: ConfigDict
    published: float | None = None
    figure: str = "ood_accuracy"


def main(argv: Sequence[str]) -> int:
    """Runs the sweep.

    Returns:
      The exit status: 0 when all cells are done, 1 when some failed, 2 for a mistake in the input, 128 + signal number
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
        cells = select(read_spec(args.spec)(args.preset), args)
        failed = run_cells(cells, args.out, console, stop)
    except UserError as error:
        print(f"fdgjax: {error}", file=sys.stderr)
        return 2
    except Interrupted as news:
        console.say(str(news))
        return 128 + received[0] if received else 3
    return 1 if failed else 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m launch.sweep", description=str(__doc__).partition("\n")[0])
    parser.add_argument("spec", type=Path, help="Python file with cells(preset)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data_dir", default="", help="where the data lie")
    parser.add_argument("--preset", default="", help="the spec's own by default")
    parser.add_argument("--only", nargs="*", default=[], help="cells whose name has one of these words")
    parser.add_argument("--devices", type=int, default=1, help="config.devices of every cell")
    parser.add_argument("--time_budget", type=float, default=0.0, help="seconds after which it saves and stops")
    return parser.parse_args(argv[1:])


def read_spec(path: Path) -> Callable[[str], Sequence[Cell]]:
    """The spec's `cells`.

    Raises:
      UserError: no such file, or no such function in it.
    """
    found = importlib.util.spec_from_file_location(path.stem, path) if path.is_file() else None
    if found is None or found.loader is None:
        raise UserError(f"SPEC got '{path}'; expected a Python file, such as launch/specs/uap_rotated_mnist.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    if not hasattr(module, "cells"):
        raise UserError(f"SPEC '{path}' has no function cells; expected cells(preset) -> list of launch.sweep.Cell")
    cells: Callable[[str], Sequence[Cell]] = module.cells
    return cells


def select(cells: Sequence[Cell], args: argparse.Namespace) -> list[Cell]:
    """The cells that were asked for, told where the data are and on how many devices to run.

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
    return chosen


def run_cells(cells: Sequence[Cell], out: Path, console: Console, stop: threading.Event) -> list[str]:
    """Runs what is not finished, writes the table after each; the names of those that failed.

    Raises:
      Interrupted: `stop` was set.
    """
    failed: dict[str, str] = {}
    out.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(cells, start=1):
        if not summary_of(out, cell):
            console.say(f"[{number}/{len(cells)}] {cell.name}")
            try:
                run_cell(cell, out, console, stop)
            except UserError as error:
                failed[cell.name] = str(error)
                console.say(f"{cell.name} failed: {error}")
            # The next cell is another program.
            jax.clear_caches()
        write_text(out / "table.md", table(cells, out, failed))
    console.say(table(cells, out, failed))
    return list(failed)


def run_cell(cell: Cell, out: Path, console: Console, stop: threading.Event) -> None:
    """One run."""
    config = read_config(cell.config)
    remember_compilations(config)
    split_cpu(config)
    run(config, out / cell.name, console, stop)


def summary_of(out: Path, cell: Cell) -> dict[str, Any]:
    """What a finished run left; empty for another."""
    path = out / cell.name / "summary.json"
    summary: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return summary


def table(cells: Sequence[Cell], out: Path, failed: dict[str, str]) -> str:
    """Our figures beside the published ones, in percent, as Markdown."""
    lines = ["| run | ours | published | difference |", "|---|--:|--:|--:|"]
    for cell in cells:
        ours = summary_of(out, cell).get(cell.figure)
        figures = [ours, cell.published]
        shown = ["" if figure is None else f"{100 * figure:.1f}" for figure in figures]
        if cell.name in failed:
            shown[0] = "failed"
        difference = "" if ours is None or cell.published is None else f"{100 * (ours - cell.published):+.1f}"
        lines.append(f"| {cell.name} | {shown[0]} | {shown[1]} | {difference} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
