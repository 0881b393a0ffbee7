"""Losses that make several views of labelled images agree: in their features, and in their predictions."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp

from fdgjax.objectives.cross_entropy import masked_mean
from fdgjax.objectives.self_supervised import directions
from fdgjax.utils.registry import lookup

POSITIVES: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "others": lambda own: ~own,
    "all": jnp.ones_like,
}
"""Which vectors of its class are an anchor's positives, given the identity as bool `[2 B, 2 B]`."""


def supervised_contrast(
    first: jax.Array,
    second: jax.Array,
    labels: jax.Array,
    mask: jax.Array,
    *,
    temperature: float = 0.1,
    positives: str = "others",
) -> jax.Array:
    r"""The supervised contrastive loss of two views.

    With the 2 B vectors z of both views, scaled to length 1, and P(i) the others of i's class,

        1/(2B) sum_i -1/|P(i)| sum_(p in P(i)) log( exp(z_i . z_p / T) / sum_(k != i) exp(z_i . z_k / T) ).

    Args:
      first, second: features of two views of the same images, `[B, m]`.
      labels: int32 `[B]`.
      mask: 1 for an image, 0 for padding, which is in no sum, `[B]`.
      temperature: T.
      positives: the entry of `POSITIVES`; with `all` an anchor is in its own P(i), which adds a constant to the loss
        and divides its gradient by one more.

    References:
      Khosla et al., "Supervised contrastive learning", 2020, equation 2.
    """
    vectors = directions(jnp.concatenate([first, second]))
    counted, classes = jnp.concatenate([mask, mask]) > 0, jnp.concatenate([labels, labels])
    own = jnp.eye(len(vectors), dtype=bool)
    similarity = jnp.matmul(vectors, vectors.T, precision=jax.lax.Precision.HIGHEST) / temperature
    log_sum = jax.nn.logsumexp(similarity, axis=1, where=counted[None] & ~own)
    same = (classes[:, None] == classes[None]) & counted[None] & lookup("positives", positives, POSITIVES)(own)
    number = jnp.sum(same.astype(similarity.dtype), axis=1)
    nearness = jnp.sum(jnp.where(same, similarity, 0), axis=1) / jnp.maximum(number, 1)
    return masked_mean(jnp.where(counted, log_sum - nearness, 0), counted.astype(similarity.dtype))


def jensen_shannon(logits: Sequence[jax.Array], mask: jax.Array) -> jax.Array:
    """The mean over the images of `1/K sum_k KL(p_k || M)`, `M = 1/K sum_k p_k`, with the predictions p of K views.

    Args:
      logits: `[B, classes]` for each view.
      mask: 1 for an image, 0 for padding, `[B]`.
    """
    logs = jnp.stack([jax.nn.log_softmax(one) for one in logits])
    mixture = jax.nn.logsumexp(logs, axis=0) - jnp.log(jnp.float32(len(logits)))
    return masked_mean(jnp.mean(jnp.sum(jnp.exp(logs) * (logs - mixture[None]), axis=2), axis=0), mask)
