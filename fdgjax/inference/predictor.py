"""What classifies samples: the models of a run, or an export's program."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fdgjax.data.columns import Column
from fdgjax.inference.classifier import BY_DEFAULT, Chosen, Predicted, open_classifier, predicted_by
from fdgjax.inference.program import read_program
from fdgjax.inference.safeguards import Safeguards
from fdgjax.inference.tensors import facts_of
from fdgjax.run.records import Workdir
from fdgjax.utils.errors import UserError

FACTS, PROGRAM = "model.json", "program.bin"
"""The files of an export that a predictor is made of."""
CHECKSUM = "program_sha256"
"""The fact of an export that is the SHA-256 of its program; exports of before it have none."""


def described(facts: Mapping[str, Any]) -> str:
    """The fact that says what a sample is: a table's `columns`, an array's `sample_shape`, or an `image_shape`."""
    return next((name for name in ("columns", "sample_shape") if name in facts), "image_shape")


def columns_of(facts: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of a table; () for other samples."""
    return tuple(Column(one["name"], tuple(one["categories"])) for one in facts.get("columns", ()))


class Predictor(NamedTuple):
    """facts: those of `facts_of`. predicted: the function of stored samples, uint8 `[batch, H, W, channels]` of
    images, else float32 `[batch, ...]`. safeguards: of a run's classifier; None for an export's, and where there are
    none."""

    facts: Mapping[str, Any]
    predicted: Callable[[jax.Array], Predicted]
    safeguards: Safeguards | None = None

    @property
    def numeric(self) -> bool:
        """Whether it predicts numbers instead of classes."""
        return "prediction" in self.facts

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the probabilities."""
        return tuple(self.facts["classes"])

    def set_quantile(self, coverage: float) -> float | None:
        """The largest score of a class that is in a set, see `fdgjax.evaluation.conformal`; None for not known. An
        export knows that of some values of coverage."""
        if self.safeguards is not None:
            return self.safeguards.set_quantile(coverage, self.facts["temperature"] != 1)
        found: float | None = self.facts.get("set_quantiles", {}).get(f"{coverage:g}")
        return found


def open_predictor(path: Path, chosen: Chosen) -> Predictor:
    """The predictor of a run's folder or of an export's.

    Raises:
      UserError: neither of them, a choice among the models of an export, which holds one, a damaged export; or like
        `open_classifier`.
    """
    if Workdir(path).config.is_file():
        classifier = open_classifier(path, chosen)
        return Predictor(facts_of(classifier), predicted_by(classifier), classifier.safeguards)
    if not all((path / name).is_file() for name in (FACTS, PROGRAM)):
        raise UserError(
            f"{path} is neither the folder of a run (with config.json) nor that of an export (with {FACTS} and "
            f"{PROGRAM}); expected one of them"
        )
    if chosen._replace(guarded=False) != BY_DEFAULT:
        raise UserError(
            f"{path} is an export, which holds a single model; expected no --client, --seed, --round, --calibrated or "
            "--data_dir: these choose what fdgjax export writes"
        )
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        program = fitting_program((path / PROGRAM).read_bytes(), facts)
        return Predictor(facts, lambda samples: Predicted(program(samples), None))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the export {path} is damaged ({type(error).__name__}: {error}); expected the files that fdgjax export "
            "wrote; export again"
        ) from error


def fitting_program(content: bytes, facts: Mapping[str, Any]) -> Callable[[jax.Array], jax.Array]:
    """The program of an export, of samples -> probabilities or numbers.

    Raises:
      ValueError, KeyError: it is none, or not the one of these facts.
    """
    if CHECKSUM in facts and hashlib.sha256(content).hexdigest() != facts[CHECKSUM]:
        raise ValueError(f"{PROGRAM} is not the program of {FACTS}")
    program = read_program(content)
    kind = described(facts)
    sample = (len(facts[kind]),) if kind == "columns" else tuple(facts[kind])
    wanted = sample, (1 if "prediction" in facts else len(facts["classes"]),)
    found = tuple(program.in_avals[0].shape[1:]), tuple(program.out_avals[0].shape[1:])
    if found != wanted:
        raise ValueError(f"{PROGRAM} maps {found[0]} to {found[1]}, {FACTS} says {wanted[0]} to {wanted[1]}")
    return program.call
