"""Losses of self-supervised methods, which make the representations of two views of an image agree."""

import jax
import jax.numpy as jnp
import optax

from fdgjax.objectives.contrastive import SHORTEST_SQUARED
from fdgjax.objectives.cross_entropy import masked_mean


def nt_xent(
    first: jax.Array, second: jax.Array, mask: jax.Array | None = None, *, temperature: float = 0.07
) -> jax.Array:
    r"""SimCLR's normalised temperature-scaled cross-entropy.

    With the 2 B vectors z of both views, scaled to length 1, and j(i) the other view of i's image,

        -1/(2B) sum_i log( exp(z_i . z_j(i) / T) / sum_(k != i) exp(z_i . z_k / T) ).

    Args:
      first, second: projections of two views of the same images, `[B, d]`.
      mask: 1 for an image, 0 for padding, `[B]`; padding is no sample's negative. Without it all are images.
      temperature: T.

    References:
      Chen et al., "A simple framework for contrastive learning", 2020, equation 1; FedGaLA's official code.
    """
    batch = len(first)
    real = jnp.ones(batch, first.dtype) if mask is None else mask.astype(first.dtype)
    both, counted = directions(jnp.concatenate([first, second])), jnp.concatenate([real, real])
    similarity = jnp.matmul(both, both.T, precision=jax.lax.Precision.HIGHEST) / temperature
    others = (counted[None, :] > 0) & ~jnp.eye(2 * batch, dtype=bool)
    log_sum = jax.nn.logsumexp(similarity, axis=1, where=others)
    # Taken from the same products, so that the gradient of an image without negatives is exactly zero.
    other_view = (jnp.arange(2 * batch) + batch) % (2 * batch)
    partner = jnp.take_along_axis(similarity, other_view[:, None], axis=1)[:, 0]
    return masked_mean(jnp.where(counted > 0, log_sum - partner, 0), counted)


def info_nce(
    queries: jax.Array, keys: jax.Array, queue: jax.Array, mask: jax.Array | None = None, *, temperature: float = 0.07
) -> jax.Array:
    r"""MoCo's loss: each query against its own key and a queue of former keys.

        -mean_i log( exp(q_i . k_i / T) / (exp(q_i . k_i / T) + sum_n exp(q_i . n / T)) )

    over vectors scaled to length 1. Keys and queue have no gradient.

    Args:
      queries, keys: `[B, d]`, of two views of the same images.
      queue: former keys, `[length, d]`.
      mask: 1 for an image, 0 for padding, `[B]`.
      temperature: T.

    References:
      He et al., "Momentum contrast for unsupervised visual representation learning", 2020, equation 1.
    """
    q = directions(queries)
    k, former = (jax.lax.stop_gradient(directions(x)) for x in (keys, queue))
    negative = jnp.matmul(q, former.T, precision=jax.lax.Precision.HIGHEST)
    logits = jnp.concatenate([jnp.sum(q * k, axis=1, keepdims=True), negative], axis=1) / temperature
    counted = jnp.ones(len(q), q.dtype) if mask is None else mask
    return masked_mean(jax.nn.logsumexp(logits, axis=1) - logits[:, 0], counted)


def negative_cosine(predictions: jax.Array, targets: jax.Array) -> jax.Array:
    """`-cos(p_i, z_i)` for each sample, `[B]`; the targets `[B, d]` have no gradient.

    References:
      SimSiam: Chen and He, "Exploring simple Siamese representation learning", 2021, equation 1. BYOL's loss is `2 + 2`
      times it (Grill et al., "Bootstrap your own latent", 2020, equation 2).
    """
    return -optax.losses.cosine_similarity(predictions, jax.lax.stop_gradient(targets), epsilon=SHORTEST_SQUARED)


def directions(vectors: jax.Array) -> jax.Array:
    """Rows scaled to length 1; one without a direction becomes zero, and has no gradient."""
    squared = jnp.sum(vectors * vectors, axis=1, keepdims=True)
    long = squared > SHORTEST_SQUARED
    return jnp.where(long, vectors * jax.lax.rsqrt(jnp.where(long, squared, 1)), 0)
