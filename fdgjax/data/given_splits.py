"""Splits that are given: which samples are for training, for validation and for tests, as those say who made the data.

Without them samples are held out at random (`fdgjax.data.splits`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError, printable

FIELD_OF: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "crossval", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What samples of a split are for, a field of `Splits`, by its names in lower case."""
EXPECTED = "train, validation (or val, valid, crossval, dev) or test"

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Positions of training, validation and test samples, ascending."""


class Splits(NamedTuple):
    """What each sample is for, bool `[samples]` each. Samples for nothing take no part.

    A sample for tests may also be one for training or validation, as in lists that test a model on all images of the
    domain that it has not seen: where its domain is trained on, it is no test sample then.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    @property
    def used(self) -> np.ndarray:
        """Whether a sample is for anything, bool `[samples]`."""
        return self.train | self.validation | self.test

    def of_source(self, rows: np.ndarray) -> Parts:
        """The parts of these rows where their domain is trained on."""
        train, validation = (rows[field[rows]] for field in (self.train, self.validation))
        return train, validation, rows[self.test[rows] & ~(self.train | self.validation)[rows]]

    def of_target(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The test samples among these rows of an unseen domain, and those for training that are none of them."""
        return rows[self.test[rows]], rows[(self.train & ~self.test)[rows]]


def splits_of(words: Sequence[str]) -> Splits:
    """The splits of samples from the word of each, one of `FIELD_OF`."""
    fields = np.array([FIELD_OF[word.lower()] for word in words], np.str_)
    return Splits(*(fields == field for field in Splits._fields))


def unknown_split(words: Sequence[str]) -> int | None:
    """The position of the first word that names no split; None if all do."""
    return next((place for place, word in enumerate(words) if word.lower() not in FIELD_OF), None)


def field_in(name: str) -> str:
    """What the samples of a list are for, by its file's name, such as `photo_crossval_kfold.txt`; '' if its words do
    not say it.

    Raises:
      UserError: a name that says two.
    """
    found = {FIELD_OF[word] for word in re.split(r"[\W\d_]+", name.lower()) if word in FIELD_OF}
    if len(found) > 1:
        raise UserError(
            f"the list {printable(name)} is by its name for {' and '.join(sorted(found))}; expected one of them; "
            "rename it or move it away"
        )
    return next(iter(found), "")


def check_apart(parts: Sequence[np.ndarray], groups: np.ndarray | None, whose: str) -> None:
    """Raises a `UserError` if samples of one group are in two parts.

    Args:
      parts: rows. groups: int `[samples]`, see `fdgjax.data.groups`. whose: the samples are, for the message.
    """
    if groups is None:
        return
    each = np.concatenate([np.unique(groups[rows]) for rows in parts])
    if both := len(each) - len(np.unique(each)):
        raise UserError(
            f"{whose} has {both:,} group(s) with samples in two of the given splits; expected all samples of a group "
            "in one, so that none that is trained on is evaluated on; mend the splits, or leave the groups out"
        )
