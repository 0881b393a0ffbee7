"""Statistics over seeds and test images: spreads, paired differences with intervals, rankings, and whether a paper's
figure is reproduced.

Intervals are two-sided, of `LEVEL`: of means by Student's t, of shares by Wilson. Values are in whatever unit the
caller has, but for `image_error`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
UNSETTLED = "too few seeds to say"
EQUAL = 1e-9
"""Differences of accuracies that are closer differ by rounding alone."""

Values = Mapping[tuple[str, int], float]
"""A method's figure by target and seed."""


class Spread(NamedTuple):
    """A mean over `n` seeds with their sample standard deviation (ddof = 1), None where it is not known."""

    mean: float
    std: float | None = None
    n: int = 1

    @property
    def half(self) -> float:
        """Half the interval of the mean, `t s / sqrt(n)`; 0 where a deviation or a second seed is missing."""
        return 0.0 if self.std is None or self.n < 2 else t_quantile(self.n - 1) * self.std / math.sqrt(self.n)

    @property
    def in_percent(self) -> "Spread":
        """The same of shares in [0, 1], in percent."""
        return Spread(100 * self.mean, None if self.std is None else 100 * self.std, self.n)


class Difference(NamedTuple):
    """One method's figure minus another's, paired by target and seed.

    mean: over the targets, of the mean over the target's seeds. error: its standard error. freedom: degrees of freedom.
    wins: pairs in which the first is greater. pairs: how many there are.
    """

    mean: float
    error: float
    freedom: int
    wins: int
    pairs: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean; None where no target has two seeds, or where all differences of a target are equal, as those of
        accuracies on few images may be."""
        if not self.freedom or self.error < EQUAL:
            return None
        half = t_quantile(self.freedom) * self.error
        return self.mean - half, self.mean + half

    @property
    def words(self) -> str:
        """What the interval says: `ahead`, `behind`, `undecided`, or that there are too few seeds."""
        if self.interval is None:
            return UNSETTLED
        low, high = self.interval
        return "ahead" if low > 0 else "behind" if high < 0 else "undecided"


class Ranked(NamedTuple):
    """A method's place.

    place: from 1; None for a method that has other targets than those compared. spread: of the seeds' means over its
    targets. behind: its difference from the first, None for the first itself and where no pair is common.
    """

    name: str
    place: int | None
    spread: Spread
    targets: int
    behind: Difference | None


def t_quantile(freedom: int) -> float:
    """The quantile of Student's t that bounds an interval of `LEVEL`."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def wilson(right: int, n: int) -> tuple[float, float]:
    """The interval of a share, `right` of `n` independent images (Wilson, "Probable inference, the law of succession,
    and statistical inference", 1927); within [0, 1], and not empty where all or none are right."""
    from scipy.stats import binomtest

    found = binomtest(right, n).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean, sample standard deviation and number of the values that are not None; None where there are none."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    return Spread(float(np.mean(there)), float(np.std(there, ddof=1)) if len(there) > 1 else None, len(there))


def by_point(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation over the seeds of `[seeds, points]`, of finite values; NaN for the mean of
    none and for the deviation of fewer than two."""
    known = np.ma.masked_invalid(values)
    return known.mean(axis=0).filled(np.nan), known.std(axis=0, ddof=1).filled(np.nan)


def paired(one: Values, other: Values) -> Difference | None:
    """The difference over the pairs of target and seed that both have; None where there is none.

    Targets are fixed, seeds are drawn: of the differences `d_ts` (target t of T, its n_t seeds) the mean is
    `sum_t mean_s d_ts / T`, its standard error `s sqrt(sum_t 1 / n_t) / T` with `s^2` the variance within targets, on
    `sum_t (n_t - 1)` degrees of freedom. Seeds are taken as independent between targets.
    """
    common = [key for key in one if key in other]
    if not common:
        return None
    groups: dict[str, list[float]] = {}
    for target, seed in common:
        groups.setdefault(target, []).append(one[target, seed] - other[target, seed])
    each = [np.asarray(group) for group in groups.values()]
    freedom = sum(len(group) - 1 for group in each)
    within = sum(float(np.sum((group - group.mean()) ** 2)) for group in each) / max(freedom, 1)
    return Difference(
        float(np.mean([group.mean() for group in each])),
        math.sqrt(within * sum(1 / len(group) for group in each)) / len(each),
        freedom,
        int(sum(np.sum(group > 0) for group in each)),
        len(common),
    )


def over_targets(values: Values) -> Spread | None:
    """The mean over targets, and its deviation over the seeds that every target has; without any it counts as one."""
    targets = {target for target, _ in values}
    by_target = [[value for (t, _), value in values.items() if t == target] for target in targets]
    if not by_target:
        return None
    whole = sorted({seed for _, seed in values if all((target, seed) in values for target in targets)})
    means = spread([float(np.mean([values[target, seed] for target in targets])) for seed in whole])
    mean = float(np.mean([np.mean(each) for each in by_target]))
    return Spread(mean, means and means.std, max(len(whole), 1))


def ranking(methods: Mapping[str, Values], larger: bool = True) -> list[Ranked]:
    """The methods by falling mean over targets, or by rising mean where smaller values are better.

    Differences are positive where a method is better than the first.

    Compared are those with the most targets, and of such sets with the one that most methods have; methods with other
    targets come last, without a place, and differ from the first on the targets that both have.
    """
    found = {name: each for name, values in methods.items() if (each := over_targets(values))}
    targets, sign = {name: frozenset(target for target, _ in methods[name]) for name in found}, 1 if larger else -1
    sets = list(targets.values())
    whole = max(sets, key=lambda one: (len(one), sets.count(one)), default=frozenset())
    order = sorted(found, key=lambda name: (targets[name] != whole, -sign * found[name].mean))
    signed = {name: {key: sign * value for key, value in of.items()} for name, of in methods.items()}
    return [
        Ranked(
            name,
            place if targets[name] == whole else None,
            found[name],
            len(targets[name]),
            paired(signed[name], signed[order[0]]) if place > 1 else None,
        )
        for place, name in enumerate(order, start=1)
    ]


def image_error(accuracy: float, images: float) -> float:
    """The binomial standard error of an accuracy in [0, 1] on so many test images."""
    return math.sqrt(max(accuracy * (1 - accuracy), 0.0) / images)


def tolerance(ours: Spread, theirs: Spread, error: float = 0.0) -> float:
    """The greatest distance of two means at which one is reproduced by the other.

    Either mean must lie in the other's interval, both widened by the test images: `max over both of
    sqrt(half^2 + (z error)^2)` with `z` the normal quantile of `LEVEL`. A mean of one seed, or without a deviation, has
    no interval of its own.

    Args:
      ours: our seeds.
      theirs: the paper's.
      error: standard error of the test images.
    """
    from scipy.special import ndtri

    return math.hypot(max(ours.half, theirs.half), float(ndtri((1 + LEVEL) / 2)) * error)


def verdict(ours: Spread, theirs: Spread, error: float = 0.0, larger: bool = True) -> str:
    """`reproduced` where the means are no further apart than the `tolerance`, else `better` or `worse`, by whether
    larger values are better; with one seed of ours, it says so."""
    difference = (1 if larger else -1) * (ours.mean - theirs.mean)
    near = abs(difference) <= tolerance(ours, theirs, error)
    return ("reproduced" if near else "better" if difference > 0 else "worse") + ", one seed" * (ours.n == 1)
