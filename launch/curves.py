"""A report of each folder of kept runs, without any data, and a page that lists them.

    python -m launch.curves --out DIR [--figures pdf,svg]

DIR gets a report, as by `fdgjax report`, for each folder of runs in benchmarks/results, and `index.html`.
"""

import argparse
import html
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fdgjax.cli.report import NEEDED
from fdgjax.report.figure_files import file_formats
from fdgjax.report.making import PAGE, report, write
from fdgjax.report.published import with_published
from fdgjax.report.reading import read_runs
from fdgjax.run.console import Console
from fdgjax.utils.command import command
from fdgjax.utils.errors import check_library
from fdgjax.utils.files import write_text
from launch.rows import RESULTS


@command
def main(argv: Sequence[str]) -> int:
    """Draws every kept run.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.curves", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kept", type=Path, default=RESULTS, help="folder of the folders of runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the reports")
    parser.add_argument(
        "--figures", default="", help="files of each figure besides the page: pdf, svg, png, with commas"
    )
    args = parser.parse_args(argv[1:])
    for library in NEEDED:
        check_library("a figure", library, "report")
    formats, console, lines = file_formats(args.figures), Console(), list[str]()
    for folder in sorted({path.relative_to(args.kept).parts[0] for path in args.kept.rglob("config.json")}):
        runs = with_published(read_runs([args.kept / folder]))
        shown = shlex.join(["python", "-m", "launch.curves", *argv[1:]])
        write(args.out / folder, report(runs, shown, states=False, formats=formats))
        name = html.escape(folder)
        lines.append(f'<li><a href="{name}/{PAGE}">{name}</a>: {len(runs)} experiments</li>')
        console.say(f"{len(runs)} experiments in {args.out / folder / PAGE}")
    head = '<!DOCTYPE html><meta charset="utf-8"><title>Kept runs</title>'
    write_text(args.out / "index.html", "\n".join([head, "<h1>Kept runs</h1>", "<ul>", *lines, "</ul>", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
