"""Pseudo-labels for unlabelled samples."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import Model, Output, PseudoLabels, Samples, Variables


def argmax_labels(logits: jax.Array) -> PseudoLabels:
    """The most probable class of each sample and its probability; logits `[n, K]`."""
    return _labelled(logits, jnp.argmax(logits, axis=1))


def centroid_labels(
    features: jax.Array, logits: jax.Array, mask: jax.Array | None = None, *, threshold: int = 0, passes: int = 2
) -> PseudoLabels:
    """The class of the nearest centroid by cosine, among the classes that the model predicts.

    Features are extended by a constant 1 and scaled to length 1. The centroids of the first pass are the means weighted
    with the model's probabilities, those of the following passes the means of the samples labelled in the pass before.
    A class takes part if the model predicts it for more than `threshold` samples; if there is no such class, every
    predicted class does. A class without samples after a pass gets none in later passes.

    Args:
      features: `[n, m]`, of all samples that are to be labelled together.
      logits: `[n, K]`.
      mask: `[n]`, 1 for a sample, 0 for padding, whose labels mean nothing; without a mask all are samples.
      threshold: number of predictions that a class has to exceed.
      passes: at least 1.

    References:
      UAP, section 4.2; Liang et al., "Do we really need to access the source data?", ICML 2020, equations 4 to 6 (UAP's
      reference [20]) and its official code, which has the constant and the threshold.
    """
    weights = jnp.ones(features.shape[:1], features.dtype) if mask is None else mask.astype(features.dtype)
    classes = logits.shape[1]
    extended = jnp.concatenate([features, jnp.ones_like(features[:, :1])], axis=1)
    z = jnp.where(weights[:, None] > 0, _directions(extended), 0)
    probabilities = jnp.where(weights[:, None] > 0, jax.nn.softmax(logits), 0)
    predicted = weights @ jax.nn.one_hot(jnp.argmax(logits, axis=1), classes, dtype=z.dtype)
    enough = predicted > threshold
    candidates = jnp.where(jnp.any(enough), enough, predicted > 0)

    def nearest(assignment: jax.Array) -> jax.Array:
        # Cosines do not depend on a centroid's length: sums serve as well as means.
        centroids = jnp.matmul(assignment.T, z, precision=jax.lax.Precision.HIGHEST)
        cosines = jnp.matmul(z, _directions(centroids).T, precision=jax.lax.Precision.HIGHEST)
        possible = candidates & (jnp.sum(assignment, axis=0) > 0)
        return jnp.argmax(jnp.where(possible[None, :], cosines, -jnp.inf), axis=1)

    labels = nearest(probabilities)
    for _ in range(passes - 1):
        labels = nearest(weights[:, None] * jax.nn.one_hot(labels, classes, dtype=z.dtype))
    return _labelled(logits, labels)


def _directions(vectors: jax.Array) -> jax.Array:
    """Rows scaled to length 1; a row of zeros stays one."""
    lengths = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(lengths > 0, lengths, 1)


def _labelled(logits: jax.Array, labels: jax.Array) -> PseudoLabels:
    of_labels = jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], axis=1)[:, 0]
    return PseudoLabels(labels.astype(jnp.int32), of_labels, label_weight=jnp.ones_like(of_labels))


LABELLERS: Mapping[str, Callable[[Output, jax.Array], PseudoLabels]] = {
    "centroids": lambda output, mask: centroid_labels(output.features, output.logits, mask),
    "argmax": lambda output, mask: argmax_labels(output.logits),
}
"""How pseudo-labels are generated, from a model's outputs for all samples of a client and the mask of its padding."""


def outputs_for_all(model: Model, variables: Variables, samples: Samples) -> Output:
    """A model's outputs for all samples of a client, in evaluation mode, `[longest, ...]`."""
    output: Output = samples.each(lambda batch: model.evaluate(variables, batch.inputs))
    return output
