"""A classifier's files, to be used without this package."""

import hashlib
import logging
from pathlib import Path

from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.left_out import read_left_out
from fdgjax.inference.model_card import card_of
from fdgjax.inference.predictor import CHECKSUM, FACTS, PROGRAM
from fdgjax.inference.program import as_program
from fdgjax.inference.tensors import facts_of, write_tensors
from fdgjax.run.records import Workdir, finished
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import left_beside, make_folder, write_bytes, write_json, write_text

LOGGER = logging.getLogger(__name__)
TENSORS, CARD = "model.safetensors", "README.md"
NAMES = (TENSORS, PROGRAM, FACTS, CARD)


def check_out(out: Path) -> None:
    """Raises a `UserError` for a folder that holds anything but an export."""
    if out.exists() and (not out.is_dir() or {*out.iterdir()} - {*files_in(out)}):
        raise UserError(f"--out got '{out}', which is a file or holds other files; expected a new folder; choose one")


def files_in(out: Path) -> list[Path]:
    """The files of an export, and those that a kill while one was written has left."""
    return [path for name in NAMES for path in (out / name, *left_beside(out / name))]


def export(classifier: Classifier, run: Path, out: Path) -> None:
    """Writes the files of an export, in place of an earlier one's, the facts last: without them a folder is none. They
    have the program's checksum.

    Args:
      classifier: what is exported. run: the folder of its run, or the file that a deployment left.
      out: the folder of the export.
    """
    program = as_program(classifier)
    make_folder(out)
    for path in files_in(out):
        path.unlink(missing_ok=True)
    write_bytes(out / PROGRAM, program)
    write_tensors(classifier, out / TENSORS)
    left_out = read_left_out(run) if classifier.client == UNSEEN else {}
    # A deployment leaves a model when it is finished.
    deployed = run.is_file()
    done = deployed or bool(finished(Workdir(run), LOGGER.warning))
    write_text(out / CARD, card_of(classifier, done, left_out, deployed))
    write_json(out / FACTS, facts_of(classifier) | {CHECKSUM: hashlib.sha256(program).hexdigest()})
