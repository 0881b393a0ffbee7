"""A page, tables and figures of finished or unfinished runs.

    fdgjax report RUNS... --out DIR [--data_dir DATA] [--no-states] [--reach 50,60,70] [--figures pdf,svg]

RUNS are folders made by `fdgjax train --workdir` or `fdgjax sweep --out`, or folders that contain such. DIR gets
`report.html`, a page in one file, its tables as `report.md`, `TABLE.csv` and `TABLE.tex`, and by `--figures` each panel
of its figures as a file in `figures`.
"""

import argparse
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from fdgjax.cli.subcommands import files_of_with
from fdgjax.report.choices import choice_tables
from fdgjax.report.figure_files import file_formats
from fdgjax.report.making import PAGE, report, with_trained_state, write
from fdgjax.report.published import with_published
from fdgjax.report.reading import read_runs
from fdgjax.run.console import Console
from fdgjax.utils.command import command, parser_of, with_words
from fdgjax.utils.errors import UserError, check_library, printable

NEEDED = ("matplotlib", "jinja2")


@command
def main(argv: Sequence[str]) -> int:
    """Writes the report.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    console = Console()
    args = parse(argv)
    for library in NEEDED:
        check_library("a report", library, "report")
    reach, formats = accuracies(args.reach), file_formats(args.figures)
    runs = with_published(read_runs(args.runs))
    if args.states:
        runs = [with_trained_state(run, args.data_dir, console.say) for run in runs]
    command = shlex.join(["fdgjax", *with_words(files_of_with()), "report", *argv[1:]])
    write(args.out, report(runs, command, reach, args.states, formats, choice_tables(args.runs)))
    console.say(f"{len(runs)} experiments in {printable(args.out / PAGE)}")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = parser_of("report", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders of runs, or that hold such")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the runs")
    parser.add_argument("--reach", default="", help="accuracies in percent, with commas: communication to reach them")
    parser.add_argument("--figures", default="", help="files of each figure's panels: pdf, svg or png, with commas")
    parser.add_argument(
        "--states",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="open checkpoints for embeddings, divergence and features (the default)",
    )
    return parser.parse_args(argv[1:])


def accuracies(words: str) -> list[float]:
    """Parses percentages such as `50,60` into fractions.

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
