"""Split conformal prediction: sets of classes that hold the true class with a chosen probability, at least.

The score of an image with class y is `1 - p(y)`, p being the model's probabilities (Sadinle, Lei and Wasserman, 2019:
"Least ambiguous set-valued classifiers with bounded error levels"). The set of a new image holds the classes whose
score is at most q, a quantile of the scores of n held-out images:

    q = the k-th smallest score, k = ceil((n + 1) * coverage);  q = infinity, all classes, for k > n

If the new image and the held-out ones are exchangeable, its class is in the set with a probability of at least
`coverage`, and of at most `coverage + 1 / (n + 1)` where no scores are equal (Vovk et al., 2005). Images of a domain
without held-out images are not exchangeable with these: for them nothing is guaranteed.
"""

import math

import numpy as np

ROUNDING = 9
"""Decimals to which `(n + 1) * coverage` is rounded, so that 100 * 0.07 is 7 and not a little more."""


def scores_of(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`1 - p(label)`, `[n]`.

    Args:
      probabilities: `[n, classes]`.
      labels: int `[n]`.
    """
    of_label: np.ndarray = probabilities[np.arange(len(labels)), labels]
    return 1 - of_label


def upper_quantile(values: np.ndarray, share: float) -> float:
    """The smallest of n values that a further, exchangeable one does not exceed with probability `share`, at least: the
    k-th smallest, `k = ceil((n + 1) * share)`; infinity for k > n.

    Args:
      values: `[n]`, in any order.
      share: strictly between 0 and 1.
    """
    k = math.ceil(round((len(values) + 1) * share, ROUNDING))
    return float(np.partition(values, k - 1)[k - 1]) if k <= len(values) else math.inf


def prediction_sets(probabilities: np.ndarray, quantile: float) -> np.ndarray:
    """Which classes are in each image's set, bool `[n, classes]`. A set may be empty: then no class is as probable as
    the classes of the held-out images are.

    Args:
      probabilities: `[n, classes]`.
      quantile: q, of the scores of held-out images.
    """
    inside: np.ndarray = 1 - probabilities <= quantile
    return inside
