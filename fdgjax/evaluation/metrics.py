"""The reported figures, computed from counts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.evaluation.number_figures import NUMBER_HEADLINES, NUMBER_RECORDED
from fdgjax.evaluation.probability_figures import figure_headlines, finite, recorded_keys
from fdgjax.evaluation.tally import Tallies, Tally, calibration_bins, expected_calibration_error

Record = dict[str, Any]
"""One round as it is recorded, a line of `metrics.jsonl`: losses, figures and diagnostics by name."""

HEADLINES: Mapping[str, str] = {
    "id_accuracy": "id",
    "ood_accuracy": "ood",
    "ood_adapted_accuracy": "ood adapted",
    "all_accuracy": "ALL",
    "avg_accuracy": "AVG",
    "probe_accuracy": "probe",
    "attack_success": "attack",
}
"""The main figures of a run with their short names for users, in the order of display. A run has only some of them."""


def short_names() -> Mapping[str, str]:
    """`HEADLINES`, those of predicted numbers, and those of `config.figures`."""
    return {**HEADLINES, **NUMBER_HEADLINES, **figure_headlines()}


class Metrics(NamedTuple):
    """Accuracies in [0, 1]; None where the protocol has no samples for a figure.

    id_accuracy: each client's own model on its validation data, mean over clients (hFedF v2, section 5.1).
    id_all_accuracy: the same over all clients' validation samples pooled, so that clients count by their size.
    ood_accuracy: each model on the unseen domain's test samples, mean over models.
    ood_adapted_accuracy: the same after label-free adaptation to that domain, for a method with one.
    all_accuracy, avg_accuracy: each client's own model on its test samples, all samples pooled and mean over clients
      (ALL and AVG of FDSE, Table 1).
    per_domain_accuracy: source domains on test samples where there are any, else on validation data, pooled over the
      clients that hold them; the target as `ood_accuracy`.
    worst_domain_accuracy: the least of these.
    client_accuracy: each client's own model, by the client's number, on the samples used for the source domains.
    ece: expected calibration error, 15 bins, on the unseen domain, or on test samples where there is none.
    id_ece: the same on validation data.
    calibration: the bins that `ece` is made of, see `calibration_bins`.
    id_loss, ood_loss: mean cross-entropy per sample.
    attack_success: the share of the unseen domain's samples that are predicted as an attack wants them, mean over
      models; for a backdoor, of the samples with its trigger those that are predicted as its class.
    probe_accuracy: of a linear probe on the unseen domain with the first percentage of labels, mean over repeats and
      models; probe_deviation: sample standard deviation over the repeats, None of a single one; probe_by_percent,
      probe_deviation_by_percent: of every percentage. All others are None for a method that learns without labels.
    """

    id_accuracy: float | None = None
    id_all_accuracy: float | None = None
    ood_accuracy: float | None = None
    ood_adapted_accuracy: float | None = None
    all_accuracy: float | None = None
    avg_accuracy: float | None = None
    per_domain_accuracy: dict[str, float] | None = None
    worst_domain_accuracy: float | None = None
    client_accuracy: dict[str, float] | None = None
    ece: float | None = None
    id_ece: float | None = None
    calibration: dict[str, list[float]] | None = None
    id_loss: float | None = None
    ood_loss: float | None = None
    attack_success: float | None = None
    probe_accuracy: float | None = None
    probe_deviation: float | None = None
    probe_by_percent: dict[str, float] | None = None
    probe_deviation_by_percent: dict[str, float] | None = None


def figure_keys() -> tuple[str, ...]:
    """All keys of a record that are figures of its evaluation: `Metrics`, and figures of probabilities or numbers."""
    return (*Metrics._fields, *recorded_keys(), *NUMBER_RECORDED)


def measure(tallies: Tallies, domain_names: Sequence[str]) -> Metrics:
    """The figures of one evaluation."""
    source, test, target, adapted, attacked = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tallies[:5])
    ood, avg = mean_accuracy(target), mean_accuracy(test)
    shown = source if avg is None else test
    seen, unseen = shown.total.sum(axis=0), target.total.sum(axis=0)
    per_domain = {
        name: ood if ood is not None and unseen[i] else float(shown.correct[:, i].sum() / seen[i])
        for i, name in enumerate(domain_names)
        if unseen[i] or seen[i]
    }
    uncalibrated = test if ood is None else target
    return Metrics(
        id_accuracy=mean_accuracy(source),
        id_all_accuracy=per_sample(source.correct, source),
        ood_accuracy=ood,
        ood_adapted_accuracy=None if adapted is None else mean_accuracy(adapted),
        all_accuracy=per_sample(test.correct, test),
        avg_accuracy=avg,
        per_domain_accuracy=per_domain,
        worst_domain_accuracy=min(per_domain.values(), default=None),
        client_accuracy=accuracy_by_client(shown),
        ece=calibration_error(uncalibrated),
        id_ece=calibration_error(source),
        calibration=calibration_bins(uncalibrated) if np.sum(uncalibrated.total) else None,
        id_loss=per_sample(source.loss, source),
        ood_loss=per_sample(target.loss, target),
        attack_success=None if attacked is None else mean_accuracy(attacked),
    )


def measure_probe(accuracies: Mapping[int, np.ndarray]) -> Metrics:
    """The figures of linear probes, by their percentage of labels, `[models, repeats]` each."""
    means = {str(percent): float(np.mean(each)) for percent, each in accuracies.items()}
    deviations = {
        str(percent): float(np.std(np.mean(each, axis=0), ddof=1))
        for percent, each in accuracies.items()
        if each.shape[1] > 1
    }
    first = next(iter(means))
    return Metrics(
        probe_accuracy=means[first],
        probe_deviation=deviations.get(first),
        probe_by_percent=means,
        probe_deviation_by_percent=deviations or None,
    )


def is_evaluated(record: Mapping[str, Any]) -> bool:
    """Whether a round's record has figures of an evaluation."""
    return any(key in record for key in (*HEADLINES, *NUMBER_HEADLINES))


def last_evaluated(records: Sequence[Record]) -> Record:
    """The record of the last round that was evaluated; empty where none was."""
    return next(filter(is_evaluated, reversed(records)), {})


def figures(metrics: Metrics) -> dict[str, Any]:
    """The figures that are not None and finite, by name, as records and summaries hold them."""
    return finite({name: value for name, value in metrics._asdict().items() if value is not None})


def mean_accuracy(counts: Tally) -> float | None:
    """The mean over models of their accuracies, a model without samples left out; None where there are no samples."""
    total = np.sum(counts.total, axis=1)
    some = total > 0
    return float(np.mean(np.sum(counts.correct, axis=1)[some] / total[some])) if some.any() else None


def accuracy_by_client(counts: Tally) -> dict[str, float]:
    """Each model's accuracy by its number, a model without samples left out."""
    pairs = zip(np.sum(counts.correct, axis=1), np.sum(counts.total, axis=1), strict=True)
    return {str(client): float(correct / total) for client, (correct, total) in enumerate(pairs) if total}


def calibration_error(counts: Tally) -> float | None:
    """The expected calibration error; None where there are no samples."""
    return expected_calibration_error(counts) if np.sum(counts.total) else None


def per_sample(sums: np.ndarray, counts: Tally) -> float | None:
    """A sum over the samples that were counted, by their number; None where there are none."""
    samples = np.sum(counts.total)
    return float(np.sum(sums) / samples) if samples else None
