"""Statistics over seeds and test images: spreads, paired differences with intervals, rankings, and whether a paper's
figure is reproduced.

Intervals are two-sided, of `LEVEL`: of means by Student's t, of shares by Wilson. Values are in whatever unit the
caller has, but for `image_error`.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
EQUAL = 1e-9
"""Differences of accuracies that are closer differ by rounding alone."""
POOLED = 0.25
"""Above this probability what a seed does to all targets is taken for chance. At such a level pooling two variances
after a test nearly keeps what an interval promises (Bozivich, Bancroft and Hartley, "Power of analysis of variance test
procedures for certain incompletely specified models", 1956)."""

Values = Mapping[tuple[str, int], float]
"""A method's figure by target and seed."""


class Spread(NamedTuple):
    """A mean over `n` seeds with their sample standard deviation (ddof = 1), None where it is not known."""

    mean: float
    std: float | None = None
    n: int = 1

    def times(self, factor: float) -> "Spread":
        """The same of values times a factor."""
        return Spread(factor * self.mean, None if self.std is None else factor * self.std, self.n)


class Difference(NamedTuple):
    """One method's figure minus another's, paired by target and seed.

    mean: over the targets, of the mean over the target's seeds. error: its standard error. freedom: degrees of freedom
    of the error, 0 where no target has two seeds. wins: pairs in which the first is greater. pairs: how many there are.
    """

    mean: float
    error: float
    freedom: float
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
        """What the interval says: `ahead`, `behind`, `undecided`; without one, why."""
        if self.interval is None:
            spreadless = "equal" if abs(self.mean) < EQUAL else "the same difference in every seed"
            return spreadless if self.freedom else "too few seeds to say"
        low, high = self.interval
        return "ahead" if low > 0 else "behind" if high < 0 else "undecided"


class Ranked(NamedTuple):
    """A method's place.

    place: from 1; None for a method that has other targets than those compared. spread: of the seeds' means over its
    targets, of the seeds that all methods with a place have on all targets, where there are any. behind: its difference
    from the first, over the pairs that both have; None for the first itself and where no pair is common.
    """

    name: str
    place: int | None
    spread: Spread
    targets: int
    behind: Difference | None


def t_quantile(freedom: float) -> float:
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

    Targets are fixed, seeds are drawn: of the differences `d_ts` (target t of T, its n_t seeds, their variance s_t^2)
    the mean is `sum_t mean_s d_ts / T`, its variance `sum_t v_t` with `v_t = s_t^2 / (n_t T^2)`, on Welch's and
    Satterthwaite's `(sum_t v_t)^2 / sum_t (v_t^2 / (n_t - 1))` degrees of freedom, as some domains are noisier than
    others. A target with a single seed has the others' pooled variance.

    Where a seed does the same to all targets (`common_variance`: c^2 from S seeds), as another start of the network
    may, each pair of targets t, u with n_tu common seeds adds `2 c^2 n_tu / (n_t n_u T^2)`, and the degrees of freedom
    are S - 1; with the same seeds everywhere that is the t-test of the seeds' means.
    """
    common = [key for key in one if key in other]
    if not common:
        return None
    groups: dict[str, dict[int, float]] = {}
    for target, seed in common:
        groups.setdefault(target, {})[seed] = one[target, seed] - other[target, seed]
    each = [np.asarray(list(group.values())) for group in groups.values()]
    error, freedom = error_of_mean(each)
    variance, seeds = common_variance(list(groups.values()))
    if variance:
        shares = sum(
            len(a.keys() & b.keys()) / (len(a) * len(b)) for a, b in itertools.permutations(groups.values(), 2)
        )
        error, freedom = math.sqrt(error**2 + variance * shares / len(groups) ** 2), seeds - 1
    return Difference(
        float(np.mean([group.mean() for group in each])),
        error,
        freedom,
        int(sum(np.sum(group > EQUAL) for group in each)),
        len(common),
    )


def common_variance(groups: Sequence[Mapping[int, float]]) -> tuple[float, int]:
    """The variance of what a seed does to all groups alike, and the number of seeds that all groups have.

    Of these seeds' `mean_squares`, `(M - R) / T` for T groups.

    Args:
      groups: values by seed.
    """
    seeds = sorted(set.intersection(*(set(group) for group in groups)))
    if len(groups) < 2 or len(seeds) < 2:
        return 0.0, len(seeds)
    between, rest = mean_squares(np.asarray([[[group[seed] for seed in seeds] for group in groups]]), 1)
    return (between - rest) / len(groups), len(seeds)


def mean_squares(values: np.ndarray, independent: int) -> tuple[float, float]:
    """An analysis of variance of what seeds do to all targets alike: the mean squares M between seeds, R of the rest.

    M has `independent (S - 1)` degrees of freedom with S seeds, R has T - 1 times as many with T targets. Where an
    M / R as large is more than `POOLED` probable without any common effect, both are their mean by degrees of freedom.

    Args:
      values: `[methods, targets, seeds]`, at least two of the latter each.
      independent: the number of methods, less one where their mean was taken out.
    """
    from scipy.special import fdtrc

    _, targets, seeds = values.shape
    deviations = values - values.mean(axis=2, keepdims=True)
    common = deviations.mean(axis=1, keepdims=True)
    freedom = independent * (seeds - 1)
    between, rest = (float(np.sum(part**2)) for part in (common, deviations - common))
    squares = targets * between / freedom, rest / freedom / (targets - 1)
    chance = fdtrc(freedom, freedom * (targets - 1), squares[0] / max(squares[1], EQUAL**2))
    pooled = (squares[0] + (targets - 1) * squares[1]) / targets
    return (pooled, pooled) if chance > POOLED else squares


def error_of_mean(groups: Sequence[np.ndarray]) -> tuple[float, float]:
    """The standard error of the mean of some groups' means where all values are independent, and its degrees of
    freedom, 0 where no group has two values; see `paired`."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    if not freedom:
        return 0.0, 0.0
    alone = len(groups) - len(several)
    # What a group's variance counts: in its own mean, and as its share of the pooled one in those of single values.
    parts = [group.var(ddof=1) * (1 / len(group) + alone * (len(group) - 1) / freedom) for group in several]
    total, squares = sum(parts), sum(part**2 / (len(group) - 1) for part, group in zip(parts, several, strict=True))
    if not squares:
        return 0.0, float(freedom)
    return math.sqrt(total) / len(groups), float(total**2 / squares)


def over_targets(values: Values) -> Spread | None:
    """The mean over targets, and its deviation over the seeds that every target has; without any it counts as one."""
    targets = sorted({target for target, _ in values})
    by_target = [[value for (t, _), value in values.items() if t == target] for target in targets]
    if not by_target:
        return None
    whole = sorted({seed for _, seed in values if all((target, seed) in values for target in targets)})
    means = spread([float(np.mean([values[target, seed] for target in targets])) for seed in whole])
    mean = float(np.mean([np.mean(each) for each in by_target]))
    return Spread(mean, means and means.std, max(len(whole), 1))


def of_seeds(values: Values, seeds: Collection[int]) -> Values:
    """A method's figures of some seeds."""
    return {(target, seed): value for (target, seed), value in values.items() if seed in seeds}


def ranking(methods: Mapping[str, Values], larger: bool = True) -> list[Ranked]:
    """The methods by falling mean over targets, or by rising mean where smaller values are better.

    Differences are positive where a method is better than the first.

    Compared are those with the most targets, and of such sets with the one that most methods have, by the seeds that
    all of them have on all these targets; where there is no such seed, by all of each one's. Methods with other targets
    come last, without a place, and differ from the first on the targets that both have.
    """
    methods = {name: values for name, values in methods.items() if values}
    targets, sign = {name: frozenset(target for target, _ in methods[name]) for name in methods}, 1 if larger else -1
    sets = list(targets.values())
    whole = max(sets, key=lambda one: (len(one), sets.count(one)), default=frozenset())
    placed = [values for name, values in methods.items() if targets[name] == whole]
    seeds = {seed for _, seed in placed[0]} if placed else set[int]()
    shared = {seed for seed in seeds if all((target, seed) in values for values in placed for target in whole)}
    found = {
        name: each
        for name, values in methods.items()
        if (each := over_targets(of_seeds(values, shared) if targets[name] == whole and shared else values))
    }
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

    A reproduced figure is of the same distribution as ours, so that the deviations of both are one, `s`, pooled by
    degrees of freedom, f in all, over the sides that have several seeds and a deviation. With n and m seeds

        h = t(f) s sqrt(1 / n + 1 / m),        tolerance = sqrt(h^2 + (z error)^2),

    h is half the interval of the difference by Student's t for two samples; of one seed beside m it is that of the
    prediction of a single value. `z` is the normal quantile of `LEVEL`. Without any deviation h is 0; a mean over an
    unknown number of seeds (0) is taken as exact.

    Args:
      ours: our seeds.
      theirs: the paper's.
      error: standard error of the test images.
    """
    from scipy.special import ndtri

    known = [(side.n - 1, side.std) for side in (ours, theirs) if side.n > 1 and side.std is not None]
    freedom = sum(f for f, _ in known)
    half = 0.0
    if freedom:
        pooled = math.sqrt(sum(f * std**2 for f, std in known) / freedom)
        half = t_quantile(freedom) * pooled * math.sqrt(sum(1 / side.n for side in (ours, theirs) if side.n))
    return math.hypot(half, float(ndtri((1 + LEVEL) / 2)) * error)


def verdict(ours: Spread, theirs: Spread, error: float = 0.0, larger: bool = True) -> str:
    """`reproduced` where the means are no further apart than the `tolerance`, else `better` or `worse`, by whether
    larger values are better; with one seed of ours, it says so. Without any tolerance nothing can be said."""
    most = tolerance(ours, theirs, error)
    if not most:
        return "too few seeds to say"
    difference = (1 if larger else -1) * (ours.mean - theirs.mean)
    word = "reproduced" if abs(difference) <= most else "better" if difference > 0 else "worse"
    return word + ", one seed" * (ours.n == 1)
