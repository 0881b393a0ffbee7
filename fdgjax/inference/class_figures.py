"""How well a model's predictions agree with the labels: accuracy, and figures of each class, with intervals.

Intervals are Wilson's score intervals for a share of n independent trials, at 95 %; of grouped samples each group is
one. They say how far the share may be from that on further images drawn like these, not on images of another domain.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.groups import one_of_each
from fdgjax.evaluation.statistics import LEVEL, wilson

Interval = tuple[float, float]


class Share(NamedTuple):
    """A share of n trials: None, without an interval, for n = 0."""

    n: int
    value: float | None
    interval: Interval | None


class ClassFigures(NamedTuple):
    """One class. recall: of its images. precision: of the images predicted as it. f1: None without either."""

    name: str
    recall: Share
    precision: Share
    f1: float | None


class Evaluated(NamedTuple):
    """The figures of labelled images.

    accuracy: of all. macro: the means of precision, recall and F1 over the classes that have images, a precision of a
      class that was never predicted counting as 0. classes: of each class of the model. domains: each domain's
      accuracy. confusion: counts `[classes, classes]`, a row for each true class, a column for each predicted one.
    """

    accuracy: Share
    macro: dict[str, float]
    classes: list[ClassFigures]
    domains: dict[str, Share]
    confusion: np.ndarray


def share(right: np.ndarray, of: np.ndarray, groups: np.ndarray | None) -> Share:
    """The share of the samples `of` that are `right`, both bool `[n]`, with its interval; groups: int `[n]` or None."""
    n = int(of.sum())
    if not n:
        return Share(0, None, None)
    value, units = float(right[of].mean()), len(one_of_each(np.flatnonzero(of), groups))
    return Share(n, value, wilson(round(value * units), units))


def class_figures(
    true: np.ndarray,
    predicted: np.ndarray,
    class_names: Sequence[str],
    domains: Sequence[str],
    groups: np.ndarray | None = None,
) -> Evaluated:
    """The figures of predictions.

    Args:
      true, predicted: classes, int `[n]`.
      class_names: of the model.
      domains: of each image; '' for none.
      groups: int `[n]`, see `fdgjax.data.groups`; None for images that are not grouped.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    labels = np.arange(len(class_names))
    confusion = confusion_matrix(true, predicted, labels=labels)
    present = np.flatnonzero(confusion.sum(axis=1))
    means = precision_recall_fscore_support(true, predicted, labels=present, average="macro", zero_division=0)
    f1 = precision_recall_fscore_support(true, predicted, labels=labels, zero_division=np.nan)[2]
    right = true == predicted
    classes = [
        ClassFigures(
            name,
            recall=share(right, true == i, groups),
            precision=share(right, predicted == i, groups),
            f1=None if np.isnan(f1[i]) else float(f1[i]),
        )
        for i, name in enumerate(class_names)
    ]
    of_domain = {name: np.array(domains) == name for name in sorted(set(domains) - {""})}
    return Evaluated(
        accuracy=share(right, np.ones(len(true), bool), groups),
        macro=dict(zip(("precision", "recall", "f1"), map(float, means[:3]), strict=True)),
        classes=classes,
        domains={name: share(right, own, groups) for name, own in of_domain.items()},
        confusion=confusion,
    )


def as_json(found: Evaluated) -> dict[str, Any]:
    """The figures as plain data."""
    return {
        "n": found.accuracy.n,
        "accuracy": found.accuracy.value,
        "interval": found.accuracy.interval,
        "confidence": LEVEL,
        "macro": found.macro,
        "classes": [
            {
                "class": one.name,
                "recall": one.recall._asdict(),
                "precision": one.precision._asdict(),
                "f1": one.f1,
            }
            for one in found.classes
        ],
        "domains": {name: one._asdict() for name, one in found.domains.items()},
        "confusion": found.confusion.tolist(),
    }
