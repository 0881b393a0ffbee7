"""A paper's table, run by its protocol and compared with its figures.

    fdgjax reproduce NAME --out DIR --data_dir DATA --scale cpu
    fdgjax reproduce hfedf-pacs --out runs/hfedf-pacs --data_dir DATA --jobs 2

A sweep of a spec by name, with all of a sweep's options: stopped at any moment, the same command goes on.
`DIR/table.md` and `DIR/table.csv` compare every figure: within the paper's deviation, better or worse, and `reduced` at
a scale below the paper's, where a verdict would mislead.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from fdgjax.door import door
from fdgjax.registry import lookup
from fdgjax.sweeps.cells import SPECS
from fdgjax.sweeps.options import add_options
from fdgjax.sweeps.sweep import start

EXPERIMENTS: Mapping[str, Path] = {
    "hfedf-pacs": SPECS / "hfedf_pacs.py",
    "hfedf-pacs-ablation": SPECS / "hfedf_pacs_ablation.py",
    "hfedf-clients": SPECS / "hfedf_clients.py",
    "hfedf-fewshot": SPECS / "hfedf_fewshot.py",
    "fdse-pacs": SPECS / "fdse_pacs.py",
    "fdse-ablation": SPECS / "fdse_ablation.py",
    "fdse-office-ablation": SPECS / "fdse_office_ablation.py",
    "uap-rotated-mnist": SPECS / "uap_rotated_mnist.py",
    "uap-pacs": SPECS / "uap_pacs.py",
    "fedgala-pacs": SPECS / "fedgala_pacs.py",
    "fedgala-ablation": SPECS / "fedgala_ablation.py",
}


@door
def main(argv: Sequence[str]) -> int:
    """Runs the experiment; returns the exit status of `fdgjax.sweeps.sweep.start`, 2 for a name that does not exist."""
    parser = argparse.ArgumentParser(prog="fdgjax reproduce", description=str(__doc__).partition("\n")[0])
    parser.add_argument("name", metavar="NAME", help=", ".join(EXPERIMENTS))
    add_options(parser)
    args = parser.parse_args(argv[1:])
    return start(lookup("experiment", args.name, EXPERIMENTS), args, ["reproduce", *argv[1:]])
