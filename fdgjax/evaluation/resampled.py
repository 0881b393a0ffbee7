"""Figures of many resamples of the same samples at once, and the percentile intervals that follow from them (Efron,
"Bootstrap methods: another look at the jackknife", 1979).

A resample of n samples is how often it has each of them: a row of counts. Figures weigh the samples by these, which
gives what scikit-learn gives for the resample itself, for a thousand of them in the time of one. Of grouped samples
(`fdgjax.data.groups`) whole groups are drawn, as samples of one say less than as many of several (Field and Welsh,
"Bootstrapping clustered data", 2007).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.data.groups import classes_of_groups
from fdgjax.evaluation.statistics import EQUAL, LEVEL

MOST_DRAWS = 20
"""How often resamples of groups are drawn at most, until enough of them have all classes."""
AT_ONCE = 2**24
"""The most counts for which a figure is computed at once: 128 MiB of float64."""
Resampled = Callable[[np.ndarray, np.ndarray, float | None, np.ndarray], np.ndarray]
"""`(labels [n], probabilities [n, classes], threshold, counts [resamples, n]) -> figures [resamples]`."""


class Resamples(NamedTuple):
    """Resamples of n samples. counts: how often each has each group, int `[resamples, groups]`, or each sample. unit:
    the place of each sample's group, int `[n]`, None for samples that are not grouped."""

    counts: np.ndarray
    unit: np.ndarray | None = None

    def parts(self) -> Iterator[np.ndarray]:
        """How often each sample is drawn, int `[some, n]`, of all resamples one part after the other."""
        size = self.counts.shape[1] if self.unit is None else len(self.unit)
        for part in np.array_split(self.counts, math.ceil(len(self.counts) * size / AT_ONCE)):
            yield part if self.unit is None else part[:, self.unit]


def resamples_of(labels: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Resamples with replacement, int `[count, n]`. If any of them would lack a class that the samples have, each class
    is resampled by itself, so that all have as many samples of each class as there are.

    Args:
      labels: int `[n]`, n at least 1.
      count: of resamples.
      random: where they are drawn from.
    """
    size = len(labels)
    drawn = random.multinomial(size, np.full(size, 1 / size), count)
    present, place = np.unique(labels, return_inverse=True)
    of_class = np.eye(len(present), dtype=drawn.dtype)[place]
    if (drawn @ of_class).all():
        return drawn
    for one in range(len(present)):
        own = np.flatnonzero(place == one)
        drawn[:, own] = random.multinomial(len(own), np.full(len(own), 1 / len(own)), count)
    return drawn


def resamples_of_groups(
    labels: np.ndarray, groups: np.ndarray, count: int, random: np.random.Generator
) -> Resamples | None:
    """Resamples of whole groups with replacement, as many as there are, of those that have each class that the samples
    have; None where fewer than a twentieth of all have.

    Args:
      labels, groups: int `[n]`, n at least 1.
      count: of resamples.
      random: where they are drawn from.
    """
    unit, has = classes_of_groups(labels, groups)
    size, kept = len(has), list[np.ndarray]()
    for _ in range(MOST_DRAWS):
        drawn = random.multinomial(size, np.full(size, 1 / size), count)
        kept.append(drawn[(drawn @ has).all(axis=1)])
        if sum(map(len, kept)) >= count:
            return Resamples(np.concatenate(kept)[:count], unit)
    return None


def of_each(of: Callable[[np.ndarray, np.ndarray, float | None], float]) -> Resampled:
    """A figure of many resamples as that of each, one after the other."""

    def figure(
        labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
    ) -> np.ndarray:
        each = (np.repeat(np.arange(len(labels)), times) for times in counts)
        return np.array([of(labels[drawn], probabilities[drawn], threshold) for drawn in each])

    return figure


def percentile_interval(values: np.ndarray) -> tuple[float, float] | None:
    """The interval that holds `LEVEL` of the values, with as many below as above it; None where its ends are equal:
    that resamples hardly differ, as at an AUROC of 1, does not make a figure certain."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return None if high - low < EQUAL else (float(low), float(high))


def decisions(probabilities: np.ndarray, threshold: float | None) -> np.ndarray:
    """The classes decided for, int `[n]`: of two classes the second from the threshold on, else the most probable."""
    if threshold is None or probabilities.shape[1] != 2:
        return np.asarray(probabilities.argmax(axis=1))
    return (probabilities[:, 1] >= threshold).astype(int)


def cumulated(scores: np.ndarray, positive: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives `[resamples, thresholds]` at each score in falling order."""
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    taken, hit = counts[:, order].astype(np.float64), positive[order]
    return np.cumsum(taken * hit, axis=1)[:, ends], np.cumsum(taken * ~hit, axis=1)[:, ends]


def ranked_area(scores: np.ndarray, positive: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """AUROC `[resamples]` of scores, by the trapezoids between thresholds."""
    true, false = cumulated(scores, positive, counts)
    before = np.pad(true, ((0, 0), (1, 0)))[:, :-1]
    area = np.sum(np.diff(false, axis=1, prepend=0) * (true + before) / 2, axis=1)
    return np.asarray(area / (true[:, -1] * false[:, -1]))


def ranked_precision(scores: np.ndarray, positive: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Average precision `[resamples]` of scores."""
    true, false = cumulated(scores, positive, counts)
    gained = np.diff(true, axis=1, prepend=0)
    return np.asarray(np.sum(gained * true / np.maximum(true + false, 1), axis=1) / true[:, -1])


def over_classes(of: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Resampled:
    """A figure of scores for the positive class, or for each of several classes against the rest, the mean of these."""

    def figure(
        labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
    ) -> np.ndarray:
        del threshold
        classes: Sequence[int] = range(probabilities.shape[1]) if probabilities.shape[1] > 2 else (1,)
        return np.asarray(np.mean([of(probabilities[:, k], labels == k, counts) for k in classes], axis=0))

    return figure


auroc = over_classes(ranked_area)
average_precision = over_classes(ranked_precision)


def confusions(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
) -> np.ndarray:
    """Counts `[resamples, classes, classes]`: a row for each true class, a column for each decided one."""
    classes = probabilities.shape[1]
    cell = labels * classes + decisions(probabilities, threshold)
    return (counts @ np.eye(classes * classes)[cell]).reshape(-1, classes, classes)


def f1(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray) -> np.ndarray:
    """F1 of the positive class, or the mean over several classes."""
    found = confusions(labels, probabilities, threshold, counts)
    right = np.diagonal(found, axis1=1, axis2=2)
    each = 2 * right / (found.sum(axis=1) + found.sum(axis=2))
    return np.asarray(each[:, 1] if each.shape[1] == 2 else each.mean(axis=1))


def recalls(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray) -> np.ndarray:
    """Of each class the share that is recognised, `[resamples, classes]`; NaN for a class without samples."""
    found = confusions(labels, probabilities, threshold, counts)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.diagonal(found, axis1=1, axis2=2) / found.sum(axis=2))


def balanced_accuracy(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
) -> np.ndarray:
    """The mean of `recalls`."""
    return np.asarray(recalls(labels, probabilities, threshold, counts).mean(axis=1))


def quadratic_kappa(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
) -> np.ndarray:
    """Cohen's kappa with quadratic weights: one less the disagreement over that by chance."""
    found = confusions(labels, probabilities, threshold, counts)
    grades = np.arange(found.shape[1])
    weights = (grades[:, None] - grades) ** 2
    chance = np.einsum("ri,ij,rj->r", found.sum(axis=2), weights, found.sum(axis=1)) / found.sum(axis=(1, 2))
    return np.asarray(1 - np.einsum("rij,ij->r", found, weights) / chance)


def mcc(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray) -> np.ndarray:
    """The correlation of decided and true classes, 0 where one does not vary."""
    found = confusions(labels, probabilities, threshold, counts)
    true, decided, size = found.sum(axis=2), found.sum(axis=1), found.sum(axis=(1, 2))
    together = np.trace(found, axis1=1, axis2=2) * size - np.sum(true * decided, axis=1)
    spread = (size**2 - np.sum(true**2, axis=1)) * (size**2 - np.sum(decided**2, axis=1))
    return np.divide(together, np.sqrt(spread), out=np.zeros_like(together), where=spread > 0)


def sensitivity(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
) -> np.ndarray:
    """The recall of the second class."""
    return recalls(labels, probabilities, threshold, counts)[:, 1]


def specificity(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray
) -> np.ndarray:
    """The recall of the first class."""
    return recalls(labels, probabilities, threshold, counts)[:, 0]


def mean_of(each: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean `[resamples]` of numbers `[n]`."""
    return np.asarray(counts @ each / counts.sum(axis=1))


def log_loss(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray) -> np.ndarray:
    """The mean of `-log p(label)`, clipped as scikit-learn clips it."""
    del threshold
    own = probabilities[np.arange(len(labels)), labels]
    least = np.finfo(probabilities.dtype).eps
    return mean_of(-np.log(np.clip(own, least, 1 - least)), counts)


def brier(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, counts: np.ndarray) -> np.ndarray:
    """The mean squared distance from the label, halved for two classes."""
    del threshold
    classes = probabilities.shape[1]
    each = np.sum((probabilities - np.eye(classes)[labels]) ** 2, axis=1)
    return mean_of(each / 2 if classes == 2 else each, counts)
