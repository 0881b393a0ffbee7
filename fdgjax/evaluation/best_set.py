"""Which of several methods cannot be told from the best, and what to expect on a new domain.

Scores are accuracies `[methods, domains, seeds]`, of the same domains and seeds for every method.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation.statistics import EQUAL, LEVEL, mean_squares, t_quantile

Score = Callable[[np.ndarray], np.ndarray]
"""A method's score, from accuracies `[..., domains, seeds]`."""

DRAWS = 9999
"""Draws of a test: its p-value has a standard error of at most 0.5 %, and 0.2 % near 5 %."""


class BestSet(NamedTuple):
    """members: the indices of the methods that cannot be told from the best, best first. p_value: of the hypothesis
    that these are equal; 1 for a single one. p_all: of the hypothesis that all methods are equal. None: untested."""

    members: tuple[int, ...]
    p_value: float | None
    p_all: float | None


def mean_of_domains(accuracies: np.ndarray) -> np.ndarray:
    """The mean over the domains, of the means over seeds."""
    return np.asarray(accuracies.mean(axis=(-2, -1)))


def worst_of_domains(accuracies: np.ndarray) -> np.ndarray:
    """The lowest over the domains, of the means over seeds."""
    return np.asarray(accuracies.mean(axis=-1).min(axis=-1))


SCORES: dict[str, Score] = {"mean": mean_of_domains, "worst": worst_of_domains}
"""How a method's accuracies on the domains become one score, by name."""


def best_set(accuracies: np.ndarray, draws: int = DRAWS, seed: int = 0) -> BestSet:
    """The methods that cannot be told from the best: a model confidence set (Hansen, Lunde and Nason, "The model
    confidence set", 2011), whose test of equality is a sign-flip test.

    Of each pair of domain and seed, the vector of the methods' accuracies minus their mean is taken. Hypothesis: it
    could as well have had the opposite sign. Statistic: the range of the methods' means over all pairs. Its
    distribution under the hypothesis: the vectors' signs are drawn independently, `P` times, or all `2^n` signs of n
    pairs are tried if they are fewer. `p` is the share of ranges, the observed one's among them, that are at least the
    observed one. While `p <= 0.05`, the method with the lowest mean is left out and the rest is tested again. Where a
    seed does the same to a method on all domains, the observed range is divided by the root of `design_effect`.

    If all methods are equal and seeds do nothing in common, the first test keeps all of them in at least 95 of 100
    cases, however many they are; in 89 to 97 where they do (simulated: docs/choosing.md). A vector is flipped as a
    whole, so that methods may differ in their noise and be correlated; only its symmetry is assumed. With five pairs
    or fewer nothing can be told apart; see `tells_apart`. The domains are fixed: the test speaks of other seeds
    (splits, initialisations, orders of samples) on these domains, and not of other domains; see `prediction_interval`.

    Args:
      accuracies: `[methods, domains, seeds]`.
      draws: P.
      seed: of the signs.
    """
    order = np.argsort(-mean_of_domains(accuracies), kind="stable")
    p_values: list[float] = []
    for count in range(len(order), 1, -1):
        p_values.append(equality(accuracies[order[:count]], draws, seed))
        if p_values[-1] > 1 - LEVEL:
            return BestSet(tuple(map(int, order[:count])), p_values[-1], p_values[0])
    return BestSet((int(order[0]),), 1.0, p_values[0] if p_values else 1.0)


def tells_apart(pairs: int) -> bool:
    """Whether a sign-flip test of so many pairs can tell methods apart: two of its `2^n` signs give at least the
    observed range, so that `p >= 2 / 2^n`, which is above 0.05 for five pairs or fewer."""
    return 2.0 ** (1 - pairs) <= 1 - LEVEL


def equality(accuracies: np.ndarray, draws: int, seed: int) -> float:
    """The p-value of the hypothesis that the methods are equal; see `best_set`."""
    vectors = (accuracies - accuracies.mean(axis=0)).reshape(len(accuracies), -1).T
    pairs = len(vectors)
    if 2**pairs <= draws:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=pairs)))
    else:
        random = np.random.default_rng(seed).choice((1.0, -1.0), (draws, pairs))
        signs = np.concatenate([np.ones((1, pairs)), random])
    ranges = np.ptp(signs @ vectors, axis=1) / pairs
    # The first signs are all ones. Sums in another order differ by rounding.
    greater = ranges >= ranges[0] / math.sqrt(design_effect(accuracies)) - EQUAL
    return float(greater.mean())


def design_effect(accuracies: np.ndarray) -> float:
    """How many times the variance of a method's mean is what independent seeds of each domain would give.

    `D M / (M + (D - 1) R)` on D domains, of the methods' deviations from their mean and their
    `fdgjax.evaluation.statistics.mean_squares`; 1 for a single method, domain or seed.
    """
    methods, domains, _ = accuracies.shape
    if min(accuracies.shape) < 2:
        return 1.0
    between, rest = mean_squares(accuracies - accuracies.mean(axis=0), methods - 1)
    total = between + (domains - 1) * rest
    return domains * between / total if total else 1.0


def prediction_interval(
    by_domain: Sequence[float], lowest: float = 0.0, highest: float = 1.0
) -> tuple[float, float] | None:
    """Where the accuracy on a new domain is expected to lie, with a probability of 95 %, from the accuracies on D
    domains; None for a single one.

    For domains drawn from the same normal distribution: `mean ± t(D - 1) s sqrt(1 + 1 / D)`, `s` the sample standard
    deviation, and t the quantile with D - 1 degrees of freedom; cut to [lowest, highest]. With two domains t is 12.7,
    and the interval mostly says that nothing is known; with three it is 4.3, with four 3.2.
    """
    count = len(by_domain)
    if count < 2:
        return None
    half = t_quantile(count - 1) * float(np.std(by_domain, ddof=1)) * math.sqrt(1 + 1 / count)
    mean = float(np.mean(by_domain))
    return max(lowest, mean - half), min(highest, mean + half)
