"""Figures of class probabilities that medicine asks for, by scikit-learn: discrimination, decisions, and how far the
probabilities can be believed.

A figure is a pure function of samples: their labels, the probabilities that a model gives them, and, where there are
two classes, the threshold from which a probability counts as positive. The second of two classes is the positive one.

A figure may have no value: AUROC needs samples of every class, sensitivity needs positive ones. It is then None, and
left out of records and of means.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.evaluation import resampled
from fdgjax.evaluation.resampled import Resampled, decisions
from fdgjax.utils.registry import Registry
from fdgjax.utils.words import words_of

ROUNDING = 1e-9
"""A share of samples that misses the asked sensitivity by no more than this reaches it."""
MOST_OFTEN = ("id", "ood", "all", "avg")
"""The scopes of headlines, see `SCOPES`."""

Of = Callable[[np.ndarray, np.ndarray, float | None], float]
"""`(labels int [n], probabilities float64 [n, classes], threshold or None) -> figure`."""


def every_class(counts: np.ndarray) -> bool:
    """Whether every class has samples."""
    return bool(np.all(counts > 0))


class Figure(NamedTuple):
    """A figure of probabilities.

    title: for tables. of: computes it from samples for which it is `defined`. resampled: the same of many resamples at
    once, see `fdgjax.evaluation.resampled`; None to compute it of each. defined: whether it has a value, by the number
    of samples of each class. larger: whether larger values are better; it is then at most 1, and written in percent.
    binary: whether it needs two classes. thresholded: whether it needs the threshold, where there are two classes.
    share_of: the class of whose samples it is a share, None for other figures.
    """

    title: str
    of: Of
    resampled: Resampled | None = None
    defined: Callable[[np.ndarray], bool] = every_class
    larger: bool = True
    binary: bool = False
    thresholded: bool = False
    share_of: int | None = None


def auroc(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """The area under the receiver operating characteristic: of all pairs of a positive and a negative sample the share
    in which the positive one has the larger probability, ties counting half; of several classes the mean over classes,
    each against the rest."""
    from sklearn.metrics import roc_auc_score

    del threshold
    if probabilities.shape[1] == 2:
        return float(roc_auc_score(labels, probabilities[:, 1]))
    return float(roc_auc_score(labels, probabilities, multi_class="ovr", labels=np.arange(probabilities.shape[1])))


def average_precision(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """`sum_k (R_k - R_(k-1)) P_k` over falling thresholds k, with recall R and precision P; of several classes the mean
    over classes, each against the rest."""
    from sklearn.metrics import average_precision_score

    del threshold
    classes = probabilities.shape[1]
    if classes == 2:
        return float(average_precision_score(labels, probabilities[:, 1]))
    return float(average_precision_score(np.eye(classes, dtype=int)[labels], probabilities, average="macro"))


def f1(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """`2 TP / (2 TP + FP + FN)` of the positive class; of several classes the mean over classes."""
    from sklearn.metrics import f1_score

    decided, classes = decisions(probabilities, threshold), np.arange(probabilities.shape[1])
    if len(classes) == 2:
        return float(f1_score(labels, decided, pos_label=1))
    return float(f1_score(labels, decided, labels=classes, average="macro"))


def balanced_accuracy(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """The mean over classes of the share of their samples that are recognised."""
    from sklearn.metrics import balanced_accuracy_score

    return float(balanced_accuracy_score(labels, decisions(probabilities, threshold)))


def quadratic_kappa(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """`1 - sum_ij (i - j)^2 o_ij / sum_ij (i - j)^2 e_ij` of classes that are grades, i the true and j the decided one:
    o_ij is how often both occur together, e_ij by chance (Cohen, "Weighted kappa", 1968). From -1 to 1, 0 by chance."""
    from sklearn.metrics import cohen_kappa_score

    classes = np.arange(probabilities.shape[1])
    return float(cohen_kappa_score(labels, decisions(probabilities, threshold), labels=classes, weights="quadratic"))


def mcc(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """The correlation of decided and true classes (Matthews, 1975; of several classes Gorodkin, "Comparing two
    K-category assignments by a K-category correlation coefficient", 2004). From -1 to 1, 0 if one class is decided
    for all samples."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, decisions(probabilities, threshold)))


def sensitivity(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """Of the positive samples the share that is recognised."""
    from sklearn.metrics import recall_score

    return float(recall_score(labels, decisions(probabilities, threshold), pos_label=1))


def specificity(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """Of the negative samples the share that is recognised."""
    from sklearn.metrics import recall_score

    return float(recall_score(labels, decisions(probabilities, threshold), pos_label=0))


def log_loss(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """`-mean log p(label)`, in nats."""
    from sklearn.metrics import log_loss as of

    del threshold
    return float(of(labels, probabilities, labels=np.arange(probabilities.shape[1])))


def brier(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None = None) -> float:
    """`mean sum_k (p_k - [label is k])^2` (Brier, 1950), from 0 to 2; of two classes half of it, from 0 to 1."""
    from sklearn.metrics import brier_score_loss

    del threshold
    return float(brier_score_loss(labels, probabilities, labels=np.arange(probabilities.shape[1])))


def share_of_class(label: int, title: str, of: Of, resampled: Resampled) -> Figure:
    """The figure that is a share of the samples of one of two classes."""
    return Figure(title, of, resampled, lambda n: bool(n[label]), binary=True, thresholded=True, share_of=label)


FIGURES: Registry[Figure] = Registry(
    "figure",
    {
        "auroc": Figure("AUROC", auroc, resampled.auroc),
        "average_precision": Figure("average precision", average_precision, resampled.average_precision),
        "f1": Figure("F1", f1, resampled.f1, thresholded=True),
        "balanced_accuracy": Figure(
            "balanced accuracy", balanced_accuracy, resampled.balanced_accuracy, thresholded=True
        ),
        "quadratic_kappa": Figure("quadratic kappa", quadratic_kappa, resampled.quadratic_kappa, thresholded=True),
        "mcc": Figure("MCC", mcc, resampled.mcc, thresholded=True),
        "sensitivity": share_of_class(1, "sensitivity", sensitivity, resampled.sensitivity),
        "specificity": share_of_class(0, "specificity", specificity, resampled.specificity),
        "log_loss": Figure("log loss", log_loss, resampled.log_loss, lambda n: bool(n.sum()), larger=False),
        "brier": Figure("Brier score", brier, resampled.brier, lambda n: bool(n.sum()), larger=False),
    },
)
"""The figures by name, those of a user's program among them."""

SCOPES: Mapping[str, str] = {
    "id": "each client's own model on its validation data, mean over clients",
    "id_all": "the same samples pooled",
    "ood": "each model on the unseen domain's test samples, mean over models",
    "all": "each client's own model on its test samples, all pooled",
    "avg": "the same, mean over clients",
    "per_domain": "by domain, as `Metrics.per_domain_accuracy`",
    "worst_domain": "the worst of these",
    "client": "by client, as `Metrics.client_accuracy`",
}
"""Of what a figure is: the first part of its key in records, `{scope}_{figure}`."""
THRESHOLD, CURVES = "decision_threshold", "per_domain_calibration"
"""Keys of records: the threshold, and the curves of calibration."""


def interval_key(name: str) -> str:
    """The key of a figure's intervals by domain."""
    return f"per_domain_{name}_interval"


def keys_of(name: str) -> tuple[str, ...]:
    """All keys of records that a figure may have."""
    return (*(f"{scope}_{name}" for scope in SCOPES), interval_key(name))


def recorded_keys() -> tuple[str, ...]:
    """All keys of records that figures of probabilities may have."""
    return (*(key for name in FIGURES for key in keys_of(name)), THRESHOLD, CURVES)


def figure_headlines() -> Mapping[str, str]:
    """The main figures of probabilities with short names, as `HEADLINES`."""
    return {
        f"{scope}_{name}": f"{scope.upper() if scope in ('all', 'avg') else scope} {figure.title}"
        for name, figure in FIGURES.items()
        for scope in MOST_OFTEN
    }


def names_in(text: str) -> tuple[str, ...]:
    """The names of figures in comma-separated words."""
    return tuple(dict.fromkeys(words_of(text)))


def computed_alone(text: str, classes: int, threshold: float = 0) -> tuple[str, ...]:
    """Of the figures in comma-separated words, those that one party can compute of its own samples: of two classes none
    at a threshold that is not given, as it is then of all parties' samples."""
    given = classes != 2 or threshold > 0

    def alone(figure: Figure) -> bool:
        return (given or not figure.thresholded) and (classes == 2 or not figure.binary)

    return tuple(name for name in names_in(text) if alone(FIGURES[name]))


def figure_in(key: str) -> str:
    """The figure of probabilities whose key in a record this is, `''` for none; nested keys by dots."""
    return next((name for name in FIGURES for scope in SCOPES if key.partition(".")[0] == f"{scope}_{name}"), "")


def headline_keys(text: str, scopes: Sequence[str]) -> tuple[str, ...]:
    """The keys in records of the figures in comma-separated words, of each some scopes."""
    return tuple(f"{scope}_{name}" for name in names_in(text) for scope in scopes)


def with_figure(text: str, key: str) -> str:
    """Comma-separated figures, and the one whose key in a record this is, if it is one of `FIGURES`."""
    name = figure_in(key)
    return ",".join((*filter(None, [text]), name)) if name and name not in names_in(text) else text


def figure_of(figure: Figure, labels: np.ndarray, probabilities: np.ndarray, threshold: float | None) -> float | None:
    """A figure of samples; None where it has no value: too few classes among the samples, no threshold where it needs
    one, or probabilities that are not finite.

    Args:
      figure: an entry of `FIGURES`.
      labels: int `[n]`.
      probabilities: float64 `[n, classes]`, rows that sum to 1.
      threshold: of two classes; None for none.
    """
    return figure.of(labels, probabilities, threshold) if has_value(figure, labels, probabilities, threshold) else None


def has_value(figure: Figure, labels: np.ndarray, probabilities: np.ndarray, threshold: float | None) -> bool:
    """Whether `figure_of` these is not None."""
    classes = probabilities.shape[1]
    fits = classes == 2 or not figure.binary
    decided = threshold is not None or classes != 2 or not figure.thresholded
    counts = np.bincount(labels, minlength=classes)
    return fits and decided and figure.defined(counts) and bool(np.isfinite(probabilities).all())


def decision_threshold(labels: np.ndarray, probabilities: np.ndarray, sensitivity: float = 0.0) -> float | None:
    """The threshold for two classes: samples whose probability is at least as large count as positive.

    It is the probability of one of the samples: with the largest `sensitivity + specificity - 1` (Youden, "Index for
    rating diagnostic tests", 1950), or the largest one whose sensitivity is at least the asked one; of equal ones the
    largest. None for samples of one class, or probabilities that are not finite.

    Args:
      labels, probabilities: as of `figure_of`, of two classes.
      sensitivity: asked for, in (0, 1]; 0 for Youden's index.
    """
    from sklearn.metrics import roc_curve

    if not every_class(np.bincount(labels, minlength=2)) or not np.isfinite(probabilities).all():
        return None
    false, true, thresholds = (each[1:] for each in roc_curve(labels, probabilities[:, 1], drop_intermediate=False))
    index = true - false
    enough = true >= sensitivity - ROUNDING if sensitivity else index >= index.max() - ROUNDING
    place = np.argmax(enough)
    return float(thresholds[place])


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a record that are there: neither None nor an empty dict."""
    return {name: value for name, value in values.items() if value is not None and value != {}}


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a record whose numbers are all finite, as a loss of NaN predictions is not: JSON cannot represent
    the others."""
    return {name: value for name, value in values.items() if np.isfinite(jax.tree.leaves(value)).all()}
