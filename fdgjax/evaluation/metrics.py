"""From counts to the figures that are reported."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fdgjax.evaluation.tally import Tallies, Tally, expected_calibration_error


class Metrics(NamedTuple):
    """Accuracies in [0, 1].

    id_accuracy: each client's own model on its held-out data, mean over clients (hFedF v2, section 5.1).
    ood_accuracy: each model on the whole unseen domain, mean over models.
    ood_adapted_accuracy: the same after label-free adaptation to it; None for a method without.
    per_domain_accuracy: source domains pooled over the clients that hold them; the target as `ood_accuracy`.
    worst_domain_accuracy: the least of these.
    ece, id_ece: expected calibration error on the unseen domain and on held-out data, 15 bins.
    id_loss, ood_loss: mean cross-entropy per sample.
    """

    id_accuracy: float
    ood_accuracy: float
    ood_adapted_accuracy: float | None
    per_domain_accuracy: dict[str, float]
    worst_domain_accuracy: float
    ece: float
    id_ece: float
    id_loss: float
    ood_loss: float


def measure(tallies: Tallies, domain_names: Sequence[str]) -> Metrics:
    """The figures of one evaluation."""
    source, target, adapted = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tallies)
    ood = mean_accuracy(target)
    held, unseen = source.total.sum(axis=0), target.total.sum(axis=0)
    per_domain = {
        name: ood if unseen[i] else float(source.correct[:, i].sum() / held[i])
        for i, name in enumerate(domain_names)
        if unseen[i] or held[i]
    }
    return Metrics(
        id_accuracy=mean_accuracy(source),
        ood_accuracy=ood,
        ood_adapted_accuracy=None if adapted is None else mean_accuracy(adapted),
        per_domain_accuracy=per_domain,
        worst_domain_accuracy=min(per_domain.values()),
        ece=expected_calibration_error(target),
        id_ece=expected_calibration_error(source),
        id_loss=float(source.loss.sum() / source.total.sum()),
        ood_loss=float(target.loss.sum() / target.total.sum()),
    )


def mean_accuracy(counts: Tally) -> float:
    """The mean over models of each one's share of right answers."""
    return float(np.mean(counts.correct.sum(axis=1) / counts.total.sum(axis=1)))
