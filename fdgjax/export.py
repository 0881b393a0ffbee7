"""A trained run's classifier, to be used without this package.

    fdgjax export RUN --out DIR [--client K] [--calibrated]

DIR gets `model.safetensors`, the variables by name; `program.bin`, a StableHLO program of `jax.export` from bytes of
images to probabilities, for any batch; `model.json`, the classes; and README.md, the model card.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from fdgjax.door import door
from fdgjax.errors import UserError, printable
from fdgjax.evaluation.metrics import is_evaluated
from fdgjax.files import make_folder, write_json, write_text
from fdgjax.predict import add_run
from fdgjax.predicting.card import card_of
from fdgjax.predicting.classifier import open_classifier
from fdgjax.predicting.program import write_program
from fdgjax.predicting.tensors import facts_of, write_tensors
from fdgjax.records import Workdir, finished

LOGGER = logging.getLogger(__name__)
NAMES = ("model.safetensors", "program.bin", "model.json", "README.md")


@door
def main(argv: Sequence[str]) -> int:
    """Writes the export; returns the exit status, 2 for a mistake in the input."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    parser = argparse.ArgumentParser(prog="fdgjax export", description=str(__doc__).partition("\n")[0])
    add_run(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or empty folder, or an export's")
    args = parser.parse_args(argv[1:])
    check_out(args.out)
    export(args.run, args.out, args.client, args.seed, args.data_dir, args.calibrated)
    print(f"{', '.join(NAMES)} in {printable(args.out)}")
    return 0


def check_out(out: Path) -> None:
    """Raises a `UserError` for a folder that holds anything but an export."""
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - set(NAMES)):
        raise UserError(f"--out got '{out}', which is a file or holds other files; expected a new folder; choose one")


def export(run: Path, out: Path, client: int, seed: int | None, data_dir: str, calibrated: bool) -> None:
    """Writes the files of an export; see `fdgjax.predicting.classifier.open_classifier` for the arguments."""
    classifier = open_classifier(run, client=client, seed=seed, data_dir=data_dir, calibrated=calibrated)
    evaluated = [record for record in classifier.records if is_evaluated(record)]
    make_folder(out)
    write_tensors(classifier, out / NAMES[0])
    write_program(classifier, out / NAMES[1])
    write_json(out / NAMES[2], facts_of(classifier))
    card = card_of(classifier, finished(Workdir(run), LOGGER.warning), evaluated[-1] if evaluated else {})
    write_text(out / NAMES[3], card)
