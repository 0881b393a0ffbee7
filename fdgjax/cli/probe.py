"""Linear probes of trained runs, with other percentages of labels or another layer.

    fdgjax probe RUN [RUN ...] [--percent 10,20,30,40,50,60] [--layer features] [--repeats 5]

It probes each run's newest checkpoint and, for comparison, a randomly initialised encoder and the raw pixels. The
settings of the probe are the run's `config.probe`, except for those given here. The tables are printed and written to
`RUN/probes.json`, by layer.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fdgjax.evaluation.linear_probe import LAYERS
from fdgjax.evaluation.statistics import spread
from fdgjax.inference.probes import keep, probe_run
from fdgjax.run.console import Console
from fdgjax.utils.command import command, parser_of, positive_number


@command
def main(argv: Sequence[str]) -> int:
    """Probes the runs.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    args = parse(argv)
    changes = {key: getattr(args, key) for key in ("percent", "layer", "repeats") if getattr(args, key)}
    for run in args.runs:
        found = probe_run(run, args.data_dir, changes)
        keep(run, found)
        show(run, found)
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = parser_of("probe", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the run")
    parser.add_argument("--percent", default="", help="percentages of labelled samples, with commas")
    parser.add_argument("--layer", default="", help=f"what is probed: {', '.join(LAYERS)}")
    parser.add_argument("--repeats", type=positive_number, default=0, help="splits for each percentage")
    return parser.parse_args(argv[1:])


def show(run: Path, found: Mapping[str, Any]) -> None:
    """Prints the table of a run's probes, a line for each percentage; means over seeds, and the mean deviation over
    splits where there are several."""
    table = Table(
        "labels", "trained", "random encoder", "pixels", title=f"{run}, round {found['round']}, {found['layer']}"
    )
    seeds, shown = found["seeds"], ("trained", "deviation", "random_encoder", "pixels")
    for percent in seeds[0]["trained"]:
        each = {what: spread([(seed[what] or {}).get(percent) for seed in seeds]) for what in shown}
        trained, deviation, *others = ("" if one is None else f"{one.mean:.3f}" for one in each.values())
        table.add_row(f"{percent} %", f"{trained} ± {deviation}" if deviation else trained, *others)
    Console().show(table)
