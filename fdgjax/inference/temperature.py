"""Temperature scaling (Guo et al., 2017): probabilities calibrated by one number."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

RANGE = (0.02, 50.0)
AT_END = 1e-3
"""How near in `log T` to an end of `RANGE` the search stops if the loss is least there."""


def probabilities_at(logits: ArrayLike, temperature: float) -> jax.Array:
    """The models' mean `softmax(logits / temperature)`, `[samples, classes]`; logits as for `fit_temperature`."""
    return jnp.mean(jax.nn.softmax(jnp.asarray(logits) / jnp.float32(temperature)), axis=0)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The T in `RANGE` with the least `-mean log p(label)`, p being the mean over models of `softmax(logits / T)`; 1 if
    it is least at an end of `RANGE`.

    For one model the loss is convex in 1 / T, so that a bounded search finds its minimum. If the models predict every
    label, the loss falls as long as T does, and T is at least 1.

    Args:
      logits: `[models, samples, classes]`.
      labels: `[samples]`.
    """
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(lambda log: nll(logits, labels, np.exp(log)), bounds=np.log(RANGE), method="bounded")
    if np.abs(found.x - np.log(RANGE)).min() < AT_END:
        return 1.0
    all_right = np.array_equal(np.asarray(probabilities_at(logits, 1.0)).argmax(axis=1), labels)
    return max(float(np.exp(found.x)), 1.0 if all_right else 0.0)


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """The mean negative log-likelihood at a temperature."""
    from scipy.special import log_softmax, logsumexp

    of_label = log_softmax(logits.astype(np.float64) / temperature, axis=-1)[:, np.arange(len(labels)), labels]
    return float(np.log(len(logits)) - np.mean(logsumexp(of_label, axis=0)))
