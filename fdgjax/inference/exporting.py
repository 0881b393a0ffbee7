"""A classifier's files, to be used without this package."""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from fdgjax.config import completed, experiment_identity
from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.left_out import read_left_out
from fdgjax.inference.model_card import card_of
from fdgjax.inference.predictor import CHECKSUM, FACTS, PROGRAM
from fdgjax.inference.program import as_program
from fdgjax.inference.tensors import facts_of, words_of_model, write_tensors
from fdgjax.run.records import Workdir, finished
from fdgjax.utils.errors import UserError, printable
from fdgjax.utils.files import left_beside, make_folder, write_bytes, write_json, write_text

LOGGER = logging.getLogger(__name__)
TENSORS, CARD = "model.safetensors", "README.md"
NAMES = (TENSORS, PROGRAM, FACTS, CARD)
MAY_DIFFER = ("fdgjax", "set_quantiles")
"""What is said of a model in which two exports of it may differ."""


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

    Raises:
      UserError: the folder has the export of another model.
    """
    check_same(out, words_of_model(classifier))
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


def check_same(out: Path, words: Mapping[str, str]) -> None:
    """Raises a `UserError` if a folder has a finished export of another model than that with these `words_of_model`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(out / TENSORS, framework="numpy") as opened:
            there = dict(opened.metadata() or {})
    except (SafetensorError, OSError):
        return
    if not (out / FACTS).is_file():
        return
    own, held = (
        {**each, "config": "config" in each and experiment_identity(completed(json.loads(each["config"])))}
        for each in (words, there)
    )
    differ = [key for key, value in own.items() if key not in MAY_DIFFER and held.get(key) != value]
    if differ:
        name = differ[0]
        what = "other settings" if name == "config" else f"{name}={printable(held.get(name))} there, {own[name]} here"
        raise UserError(
            f"--out got '{out}', which has the export of another model ({what}); expected a new folder, or one with an "
            "earlier export of the same model; choose one, or remove that export"
        )
