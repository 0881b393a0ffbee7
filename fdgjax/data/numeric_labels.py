"""Labels that are numbers, and their standardisation.

A model learns `(y - m) / s`, with mean m and deviation s of all training labels of all clients, which follow from sums
that each client makes of its own, as those of columns do (`fdgjax.data.columns`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.data.columns import column_statistics, merged
from fdgjax.data.encoding import standardising
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.rounding import check_labels_kept
from fdgjax.utils.errors import UserError, printable


class LabelScale(NamedTuple):
    """The mean m and the deviation s of training labels, float32, in the label's unit; with a seed axis for several
    seeds."""

    mean: Any
    deviation: Any

    def standardised(self, labels: jax.Array) -> jax.Array:
        """`(y - m) / s`."""
        found: jax.Array = (labels - self.mean) / self.deviation
        return found

    def in_units(self, outputs: jax.Array) -> jax.Array:
        """`m + s z`, the inverse."""
        found: jax.Array = self.mean + self.deviation * outputs
        return found


def label_scale(labels: np.ndarray, rows: Sequence[np.ndarray]) -> LabelScale:
    """The scale of numeric labels `[samples]` from the training samples of each client, `rows`; its deviation is 1 for
    labels that are all the same."""
    scaled = standardising(merged([column_statistics(labels[own, None], (0,)) for own in rows if len(own)]), (0,))
    deviation = np.where(scaled.scale > 0, 1 / np.where(scaled.scale > 0, scaled.scale, 1), 1)
    return LabelScale(scaled.mean[0], deviation[0].astype(np.float32))


class Task(NamedTuple):
    """What is predicted. numeric: whether labels are numbers. of: the data set of a name with labels of this kind; it
    raises a `UserError` for one that has none."""

    numeric: bool
    of: Callable[[Domains, str], Domains]


def with_classes(data: Domains, name: str) -> Domains:
    """The data set, whose labels are classes."""
    if data.numeric:
        raise UserError(
            f"the labels of '{printable(name)}' are numbers, float; expected classes: whole numbers from 0; or "
            "config.task=regression"
        )
    return data


def with_numbers(data: Domains, name: str) -> Domains:
    """The data set, whose labels are numbers, or become the numbers that its classes are called by; raises a
    `UserError` if they are no numbers, or float32 rounds them by much of their spread."""
    if data.numeric:
        return data
    try:
        numbers = np.array([float(one) for one in data.class_names])
    except ValueError:
        named = printable(", ".join(data.class_names[:3]))
        raise UserError(
            f"config.task got regression, but '{printable(name)}' has classes, such as {named}; expected labels that "
            "are numbers: a table or arrays, or config.task=classification"
        ) from None
    check_labels_kept(f"the label of '{printable(name)}'", numbers[data.labels])
    return data._replace(labels=numbers[data.labels].astype(np.float32), class_names=("label",))


TASKS: Mapping[str, Task] = {"classification": Task(False, with_classes), "regression": Task(True, with_numbers)}
"""What is predicted, by name."""
