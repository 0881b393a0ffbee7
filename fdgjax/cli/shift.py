"""Measures whether the gradients of two domains agree less the more the domains differ (FedGaLA, Theorem 1, Figure 2).

    fdgjax shift RUN [--data_dir DATA] [--batches 20] [--repeats 5]

For each pair of domains of a run's data set, the unseen domain included, it computes at the run's newest checkpoint the
covariance of the loss gradients and the mutual information of the model's features. The table is printed and written
to `RUN/domain_shift.json`, from which a report draws the figure.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fdgjax.inference.domain_shift import SHIFT, measure_pairs
from fdgjax.inference.trained_run import open_trained
from fdgjax.run.console import Console
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.command import command, parser_of, positive_number


@command
def main(argv: Sequence[str]) -> int:
    """Runs the command.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    args = parse(argv)
    found = measure_pairs(open_trained(args.run, args.data_dir), args.batches, args.repeats)
    write_checked_json(args.run / SHIFT, found)
    show(found)
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = parser_of("shift", __doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the run")
    parser.add_argument("--batches", type=positive_number, default=20, help="minibatches for each gradient")
    parser.add_argument("--repeats", type=positive_number, default=5, help="gradients per domain, for their deviation")
    return parser.parse_args(argv[1:])


def show(found: Mapping[str, Any]) -> None:
    """Prints the table of pairs, the pair with the most mutual information first."""
    table = Table("domains", "mutual information", "covariance of gradients", "their correlation")
    for pair in sorted(found["pairs"], key=lambda pair: -pair["mutual_information"]):
        table.add_row(
            " and ".join(pair["domains"]),
            f"{pair['mutual_information']:.3f}",
            *(f"{np.mean(pair[key]):.3g} ± {np.std(pair[key]):.1g}" for key in ("covariance", "correlation")),
        )
    Console().show(table)
