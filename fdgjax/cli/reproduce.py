"""Reproduces a paper's table by the paper's protocol and compares it with the published figures.

    fdgjax reproduce NAME --out DIR --data_dir DATA --scale cpu
    fdgjax reproduce hfedf-pacs --out runs/hfedf-pacs --data_dir DATA --jobs 2

It is a sweep of one of the package's specs, with all options of `fdgjax sweep`; if stopped at any moment, the same
command continues it. `DIR/table.md` and `DIR/table.csv` compare every figure with the paper's: reproduced, better or
worse by the rule of docs/many_runs.md, or `reduced` at a smaller scale than the paper's, where such a verdict would
mislead.
"""

from collections.abc import Sequence

from fdgjax.cli.sweep import spec_cells, start_sweep
from fdgjax.sweeps.options import add_options, read_arguments
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.registry import lookup


@command
def main(argv: Sequence[str]) -> int:
    """Runs the experiment; returns the exit status of `fdgjax.cli.sweep.start_sweep`, 2 for a name that does not
    exist."""
    parser = parser_of("reproduce", __doc__)
    parser.add_argument("name", metavar="NAME", help=", ".join(EXPERIMENTS))
    add_options(parser)
    args = read_arguments(parser, argv[1:])
    spec = lookup("experiment", args.name, EXPERIMENTS)
    return start_sweep(*spec_cells(spec, args), args, ["reproduce", *argv[1:]])
