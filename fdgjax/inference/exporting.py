"""A classifier's files, to be used without this package."""

import logging
from pathlib import Path

from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.left_out import read_left_out
from fdgjax.inference.model_card import card_of
from fdgjax.inference.predictor import FACTS, PROGRAM
from fdgjax.inference.program import write_program
from fdgjax.inference.tensors import facts_of, write_tensors
from fdgjax.run.records import Workdir, finished
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_json, write_text

LOGGER = logging.getLogger(__name__)
NAMES = ("model.safetensors", PROGRAM, FACTS, "README.md")


def check_out(out: Path) -> None:
    """Raises a `UserError` for a folder that holds anything but an export."""
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - set(NAMES)):
        raise UserError(f"--out got '{out}', which is a file or holds other files; expected a new folder; choose one")


def export(classifier: Classifier, run: Path, out: Path) -> None:
    """Writes the files of an export.

    Args:
      classifier: what is exported. run: the folder of its run.
      out: the folder of the export.
    """
    make_folder(out)
    write_tensors(classifier, out / NAMES[0])
    write_program(classifier, out / NAMES[1])
    write_json(out / NAMES[2], facts_of(classifier))
    left_out = read_left_out(run) if classifier.client == UNSEEN else {}
    write_text(out / NAMES[3], card_of(classifier, bool(finished(Workdir(run), LOGGER.warning)), left_out))
