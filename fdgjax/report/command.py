"""A page, tables and figures of finished or unfinished runs.

    fdgjax report RUNS... --out DIR [--data_dir DATA] [--no-states] [--reach 50,60,70]

RUNS are folders that `fdgjax train --workdir` or `fdgjax sweep --out` named, or folders that hold such. DIR gets
`report.html`, a page in one file, and its tables as `report.md`, `TABLE.csv` and `TABLE.tex`.
"""

import argparse
import importlib.util
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fdgjax.door import door
from fdgjax.errors import UserError, printable
from fdgjax.files import write_text
from fdgjax.report.formats import as_csv, as_latex, as_markdown
from fdgjax.report.page import make_page
from fdgjax.report.published import with_published
from fdgjax.report.reading import Run, read_runs
from fdgjax.report.states import look_at
from fdgjax.report.tables import make_tables
from fdgjax.run.console import Console

PAGE = "report.html"
NEEDED = ("matplotlib", "jinja2")


@door
def main(argv: Sequence[str]) -> int:
    """Writes the report.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    console = Console()
    args = parse(argv)
    check_libraries()
    reach = accuracies(args.reach)
    runs = with_published(read_runs(args.runs))
    if args.states:
        runs = [with_look(run, args.data_dir, console) for run in runs]
    command = shlex.join(["fdgjax", "report", *argv[1:]])
    write(args.out, report(runs, command, reach, args.states))
    console.say(f"{len(runs)} experiments in {printable(args.out / PAGE)}")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="fdgjax report", description=str(__doc__).partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders of runs, or that hold such")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the runs")
    parser.add_argument("--reach", default="", help="accuracies in percent, with commas, for the communication needed")
    parser.add_argument(
        "--states",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="open checkpoints for embeddings, divergence and features (the default)",
    )
    return parser.parse_args(argv[1:])


def check_libraries() -> None:
    """Raises a `UserError` where the libraries of reports are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a report needs {' and '.join(missing)}, not installed; pip install 'fdgjax[report]'")


def accuracies(words: str) -> list[float]:
    """`50,60` as fractions.

    Raises:
      UserError: a part that is not a percentage.
    """
    try:
        found = [float(word) / 100 for word in words.split(",") if word]
    except ValueError:
        found = [-1.0]
    if not all(0 < accuracy <= 1 for accuracy in found):
        raise UserError(f"--reach got '{words}'; expected percentages with commas between, such as 50,60,70")
    return found


def with_look(run: Run, data_dir: str, console: Console) -> Run:
    """The run with the trained state of its first folder that has one, or the reason why there is none."""
    import jax

    for folder in run.folders:
        console.say(f"opening {printable(folder.path)}")
        try:
            look = look_at(folder.path, data_dir)
        except UserError as error:
            run = run._replace(missed=str(error))
        else:
            return run._replace(look=look, facts={**look.facts, **run.facts}, missed="")
        finally:
            # The next run compiles other programs.
            jax.clear_caches()
    return run


def report(runs: Sequence[Run], command: str, reach: Sequence[float] = (), states: bool = True) -> Mapping[str, str]:
    """The files of a report, by name.

    Args:
      runs: those reported.
      command: reproduces the report.
      reach: accuracies in (0, 1] to which communication is counted; derived from the runs where there are none.
      states: whether checkpoints were opened.
    """
    tables = make_tables(runs, reach)
    notes = [f"No trained state of {run.name}: {run.missed}." for run in runs if run.missed]
    if not states:
        notes = ["Trained states were not opened (--no-states): no embeddings, divergence and features."]
    return {
        PAGE: make_page(runs, tables, command, notes),
        "report.md": "\n".join(as_markdown(table) for table in tables),
        **{f"{table.name}.csv": as_csv(table) for table in tables},
        **{f"{table.name}.tex": as_latex(table) for table in tables},
    }


def write(out: Path, files: Mapping[str, str]) -> None:
    """Writes the files to their folder; those of an earlier report are replaced.

    Raises:
      UserError: the folder holds a file of the same name that no report wrote, or is itself a file.
    """
    if not (out / PAGE).exists() and (taken := [name for name in files if (out / name).exists()]):
        raise UserError(
            f"--out got '{out}', which has a {taken[0]} of its own; expected a folder without; choose another"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--out got '{out}', which is a file; expected a folder") from None
    for name, text in files.items():
        write_text(out / name, text)
