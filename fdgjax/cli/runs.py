"""The runs in folders: method, data, round, figures and state of each, and the keys in which they differ.

    fdgjax runs [DIR ...] [--compare]

DIR is the folder of a run, or one that holds runs at any depth; by default `runs`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fdgjax.evaluation.selection import ORACLE
from fdgjax.report.folders import Folder, read_run_folder, run_folders
from fdgjax.report.settings import differing_keys, settings_of
from fdgjax.run.console import headlines
from fdgjax.run.records import Workdir
from fdgjax.run.records.summary import mean_figures
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import lock

HEAD = ("run", "method", "data", "unseen", "round", "state", "figures")


@command
def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit status, 2 for a folder without runs."""
    parser = parser_of("runs", __doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("runs")], metavar="DIR", help="default: runs")
    parser.add_argument("--compare", action="store_true", help="also the keys of the config that differ")
    args = parser.parse_args(argv[1:])
    found = {path: read(path) for given in args.folders for path in run_folders(given)}
    for line in aligned([HEAD, *(row(path, one) for path, one in found.items())]):
        print(line)
    if args.compare:
        for line in differences([one for one in found.values() if isinstance(one, Folder)]):
            print(line)
    return 0


def read(path: Path) -> Folder | UserError:
    """A run, or why it cannot be read."""
    try:
        return read_run_folder(path)
    except UserError as error:
        return error


def row(path: Path, run: Folder | UserError) -> tuple[str, ...]:
    """A run's cells, one for each column of `HEAD`; the figures are means over its seeds."""
    if isinstance(run, UserError):
        return (printable(path), "", "", "", "", "damaged", str(run))
    own, config = settings_of(run), run.config
    done = min(max((int(one["round"]) for one in seed.records), default=0) for seed in run.seeds)
    every = [seed.figures for seed in run.seeds]
    return (
        printable(path),
        config["method"]["name"],
        config["data"]["name"],
        own["data.target"] or "-",
        f"{done}/{config['rounds']}",
        state_of(run),
        headlines(mean_figures(every)) + f" ({ORACLE})" * (config["selection"] == ORACLE) if all(every) else "",
    )


def state_of(run: Folder) -> str:
    """`finished`, `running` (a process holds the folder's lock), or `stopped`: the same command continues it."""
    if all(seed.summary for seed in run.seeds):
        return "finished"
    if not (held := Workdir(run.path).lock).exists():
        return "stopped"
    try:
        with lock(held) as free:
            return "stopped" if free else "running"
    except OSError:
        return "stopped or running"  # the file system has no locks, or the folder is another user's


def differences(runs: Sequence[Folder]) -> Iterator[str]:
    """A line for each run with its values of the keys that differ, if the table does not say all; a method's keys among
    the runs of that method."""
    every = [settings_of(run) for run in runs]
    keys = differing_keys(every)
    if not keys:
        yield "keys that differ: none but those of the table"
        return
    yield f"keys that differ: {', '.join(keys)}"
    for run, own in zip(runs, every, strict=True):
        values = ", ".join(f"{key}={printable(own[key])}" for key in keys if key in own)
        yield f"  {printable(run.path)}: {values or '-'}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines, their cells in columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
