"""A paper's table, run by its protocol and compared with its figures.

    fdgjax reproduce NAME --out DIR --data_dir DATA --scale cpu
    fdgjax reproduce hfedf-pacs --out runs/hfedf-pacs --data_dir DATA --jobs 2

A sweep of a spec by name, with all of a sweep's options: stopped at any moment, the same command goes on.
`DIR/table.md` and `DIR/table.csv` compare every figure: within the paper's deviation, better or worse, and `reduced` at
a scale below the paper's, where a verdict would mislead.
"""

import argparse
from collections.abc import Sequence

from fdgjax.cli.sweep import start_sweep
from fdgjax.sweeps.options import add_options
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.utils.command import command
from fdgjax.utils.registry import lookup


@command
def main(argv: Sequence[str]) -> int:
    """Runs the experiment; returns the exit status of `fdgjax.cli.sweep.start_sweep`, 2 for a name that does not
    exist."""
    parser = argparse.ArgumentParser(prog="fdgjax reproduce", description=str(__doc__).partition("\n")[0])
    parser.add_argument("name", metavar="NAME", help=", ".join(EXPERIMENTS))
    add_options(parser)
    args = parser.parse_args(argv[1:])
    return start_sweep(lookup("experiment", args.name, EXPERIMENTS), args, ["reproduce", *argv[1:]])
