"""The quality of pseudo-labels, for the records; computed on the host, where the true labels are known."""

from typing import Any

import numpy as np

from fdgjax.data.federation import Rows
from fdgjax.engine import RoundInfo


def pseudo_label_figures(info: RoundInfo, rows: Rows, labels: np.ndarray) -> dict[str, Any]:
    """Figures of a round's pseudo-labels over its participants' training samples; empty where there are none.

    `pseudo_label_accuracy` and `pseudo_label_confidence` over all samples, `pseudo_label_trust` their mean weight and
    `pseudo_label_trusted_accuracy` the accuracy weighted by it; `client_pseudo_label_accuracy` of each client.

    Args:
      info: of one seed, on the host.
      rows: the clients' training samples, `[clients, ...]`.
      labels: the true labels, `[samples]`.
    """
    if info.pseudo_labels is None:
        return {}
    places, length = (np.asarray(leaf)[info.participants] for leaf in rows)
    pseudo_labels = [np.asarray(leaf, np.float64) for leaf in info.pseudo_labels]
    real = np.arange(places.shape[1]) < length[:, None]
    right, confidence, label_weight = (
        (pseudo_labels[0] == np.asarray(labels)[places]) * real,
        pseudo_labels[1] * real,
        pseudo_labels[2] * real,
    )
    samples = max(real.sum(), 1)
    return {
        "pseudo_label_accuracy": float(right.sum() / samples),
        "pseudo_label_confidence": float(confidence.sum() / samples),
        "pseudo_label_trust": float(label_weight.sum() / samples),
        "pseudo_label_trusted_accuracy": float((right * label_weight).sum() / label_weight.sum())
        if label_weight.sum()
        else None,
        "client_pseudo_label_accuracy": (right.sum(axis=1) / np.maximum(length, 1)).tolist(),
    }
