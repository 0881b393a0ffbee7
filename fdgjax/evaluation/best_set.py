"""Which of several methods cannot be told from the best, and what to expect on a new domain.

Scores are accuracies `[methods, domains, seeds]`, of the same domains and seeds for every method.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation.statistics import LEVEL, t_quantile

Score = Callable[[np.ndarray], np.ndarray]
"""A method's score, from accuracies `[..., domains, seeds]`."""

DRAWS = 9999
"""Permutations of a test: its p-value has a standard error of at most 0.5 %, and 0.2 % near 5 %."""
AT_ONCE = 500
"""Permutations that are in memory at a time."""


class BestSet(NamedTuple):
    """members: the indices of the methods that cannot be told from the best, best first. p_value: of the hypothesis
    that these are equal; 1 for a single one. p_all: of the hypothesis that all methods are equal."""

    members: tuple[int, ...]
    p_value: float
    p_all: float


def mean_of_domains(accuracies: np.ndarray) -> np.ndarray:
    """The mean over the domains, of the means over seeds."""
    return np.asarray(accuracies.mean(axis=(-2, -1)))


def worst_of_domains(accuracies: np.ndarray) -> np.ndarray:
    """The lowest over the domains, of the means over seeds."""
    return np.asarray(accuracies.mean(axis=-1).min(axis=-1))


SCORES: dict[str, Score] = {"mean": mean_of_domains, "worst": worst_of_domains}
"""How a method's accuracies on the domains become one score, by name."""


def best_set(accuracies: np.ndarray, score: Score = mean_of_domains, draws: int = DRAWS, seed: int = 0) -> BestSet:
    """The methods that cannot be told from the best: a model confidence set (Hansen, Lunde and Nason, "The model
    confidence set", 2011), whose test of equality is a permutation test.

    Hypothesis: in each pair of domain and seed, any method's accuracy could as well have been any other's. Statistic:
    the range of the methods' scores, the best minus the worst. Its distribution under the hypothesis: each pair's
    accuracies are permuted among the methods, independently. With `P` permutations of which `b` have a range of at
    least the observed one, `p = (1 + b) / (1 + P)`. While `p <= 0.05`, the worst method is left out and the rest is
    tested again.

    If all methods are equal, the first test keeps all of them in 95 of 100 cases, however many they are; more
    generally, with that probability no method is left out that is equal to the best. No distribution is assumed. The
    domains are fixed: the test speaks of other seeds (splits, initialisations, orders of samples) on these domains, and
    not of other domains; see `prediction_interval`.

    Args:
      accuracies: `[methods, domains, seeds]`.
      score: of each method.
      draws: P.
      seed: of the permutations.
    """
    order = np.argsort(-score(accuracies), kind="stable")
    p_values: list[float] = []
    for count in range(len(order), 1, -1):
        p_values.append(equality(accuracies[order[:count]], score, draws, seed))
        if p_values[-1] > 1 - LEVEL:
            return BestSet(tuple(map(int, order[:count])), p_values[-1], p_values[0])
    return BestSet((int(order[0]),), 1.0, p_values[0] if p_values else 1.0)


def equality(accuracies: np.ndarray, score: Score, draws: int, seed: int) -> float:
    """The p-value of the hypothesis that the methods are equal; see `best_set`."""
    generator = np.random.default_rng(seed)
    observed, greater = np.ptp(score(accuracies)), 0
    for start in range(0, draws, AT_ONCE):
        copies = np.broadcast_to(accuracies, (min(AT_ONCE, draws - start), *accuracies.shape))
        # Half a millionth of an image: sums in another order differ by rounding.
        greater += int(np.sum(np.ptp(score(generator.permuted(copies, axis=1)), axis=1) >= observed - 1e-9))
    return (1 + greater) / (1 + draws)


def prediction_interval(by_domain: Sequence[float]) -> tuple[float, float] | None:
    """Where the accuracy on a new domain is expected to lie, with a probability of 95 %, from the accuracies on D
    domains; None for a single one.

    For domains drawn from the same normal distribution: `mean ± t(D - 1) s sqrt(1 + 1 / D)`, `s` the sample standard
    deviation, and t the quantile with D - 1 degrees of freedom; cut to [0, 1]. With two domains t is 12.7, and the
    interval mostly says that nothing is known; with three it is 4.3, with four 3.2.
    """
    count = len(by_domain)
    if count < 2:
        return None
    half = t_quantile(count - 1) * float(np.std(by_domain, ddof=1)) * math.sqrt(1 + 1 / count)
    mean = float(np.mean(by_domain))
    return max(0.0, mean - half), min(1.0, mean + half)
