"""Differences between the domains of a minibatch: of losses, features and gradients.

`members`, float32 `[batch, domains]`, is 1 where a sample is of a domain and 0 elsewhere; the rows of padding are all
0. Domains without a sample in the batch take no part.
"""

from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch
from fdgjax.objectives.cross_entropy import masked_mean

WIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""DomainBed's Gaussian kernels: `exp(-g |x - y|^2)` for each g."""

precise = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
"""`einsum` in full precision: accelerators multiply matrices in reduced precision by default."""


def members(batch: Batch, domains: int) -> jax.Array:
    """Which sample is of which domain, `[batch, domains]`."""
    assert isinstance(batch.domains, jax.Array), "the batch has domains"
    return jax.nn.one_hot(batch.domains, domains) * batch.mask[:, None]


def domain_means(values: jax.Array, members: jax.Array) -> jax.Array:
    """The mean of `values`, `[batch]`, over the samples of each domain, `[domains]`; 0 where there is none."""
    return precise("b,bd->d", values, members) / jnp.maximum(jnp.sum(members, axis=0), 1)


def mean_over_domains(values: jax.Array, members: jax.Array) -> jax.Array:
    """The mean of `domain_means` over the domains in the batch; `values` `[batch]`."""
    return masked_mean(domain_means(values, members), present_domains(members))


def present_domains(members: jax.Array, least: int = 1) -> jax.Array:
    """1 for a domain with at least `least` samples, `[domains]`."""
    return (jnp.sum(members, axis=0) >= least).astype(members.dtype)


def pair_distance(values: jax.Array, there: jax.Array) -> jax.Array:
    """The mean over pairs of domains of `mean_k (a_k - b_k)^2`; 0 for fewer than two domains.

    With n domains, `sum_(i<j) |a_i - a_j|^2 = n sum_i |a_i - mean|^2`.

    Args:
      values: `[domains, ...]`.
      there: 1 for the domains that take part, `[domains]`.
    """
    flat, count = values.reshape(len(values), -1), jnp.sum(there)
    centre = precise("d,dk->k", there, flat) / jnp.maximum(count, 1)
    spread = precise("d,dk->", there, jnp.square(flat - centre[None, :])) / flat.shape[1]
    return 2 * spread / jnp.maximum(count - 1, 1)


def domain_variance(values: jax.Array, there: jax.Array) -> jax.Array:
    """`mean_d mean_k (v_dk - mean_e v_ek)^2` over the domains with samples: with n domains, (n - 1) / 2n times the
    mean squared distance of pairs."""
    count = jnp.maximum(jnp.sum(there), 1)
    return pair_distance(values, there) * (count - 1) / (2 * count)


def coral(features: jax.Array, members: jax.Array) -> jax.Array:
    """The mean over pairs of domains of `mean_k (mu_ik - mu_jk)^2 + mean_kl (C_ikl - C_jkl)^2`.

    mu_i and C_i are the mean and the unbiased covariance of domain i's features; a domain of one sample has no
    covariance and is left out of the second term.

    Args:
      features: `[batch, m]`.
      members: `[batch, domains]`.

    References:
      Sun and Saenko, "Deep CORAL", 2016, with means added as in DomainBed.
    """
    counts = jnp.sum(members, axis=0)
    means = precise("bd,bm->dm", members, features) / jnp.maximum(counts, 1)[:, None]
    centred = features - precise("bd,dm->bm", members, means)
    covariances = precise("bd,bm,bn->dmn", members, centred, centred) / jnp.maximum(counts - 1, 1)[:, None, None]
    return pair_distance(means, present_domains(members)) + pair_distance(covariances, present_domains(members, 2))


def pairwise_mmd(features: jax.Array, members: jax.Array, *, unbiased: bool = False) -> jax.Array:
    """The mean over pairs of domains of `mean k(x, x') + mean k(y, y') - 2 mean k(x, y)`, k the sum of `WIDTHS`.

    Where the means include each sample paired with itself (biased), n samples whose features are far apart
    have `mean k(x, x') = 7 / n`, which rewards features that are all alike. `fdgjax.objectives.mmd` is another
    estimate, with UAP's kernels.

    Args:
      features: `[batch, m]`.
      members: `[batch, domains]`.
      unbiased: leave out pairs of a sample with itself; a domain of one sample then takes no part.

    References:
      Li, Pan, Wang and Kot, "Domain generalization with adversarial feature learning", 2018, with DomainBed's kernels.
    """
    weights = members / jnp.maximum(jnp.sum(members, axis=0), 1)[None, :]
    within = precise("bd,bc,ce->de", weights, kernels(features), weights)
    alone, there = jnp.diagonal(within), present_domains(members)
    if unbiased:
        counts, there = jnp.sum(members, axis=0), present_domains(members, 2)
        alone = (counts * alone - len(WIDTHS)) / jnp.maximum(counts - 1, 1)
    different = there[:, None] * there[None, :] * (1 - jnp.eye(len(there), dtype=there.dtype))
    pairs = different * (alone[:, None] + alone[None, :] - 2 * within)
    count = jnp.sum(there)
    return jnp.sum(pairs) / jnp.maximum(count * (count - 1), 1)


@jax.checkpoint
def kernels(features: jax.Array) -> jax.Array:
    """The sum of the Gaussian kernels of each pair of samples, `[batch, batch]`."""
    distances = jnp.sum(jnp.square(features[:, None, :] - features[None, :, :]), axis=-1)
    return sum((jnp.exp(-width * distances) for width in WIDTHS), jnp.zeros_like(distances))


def scale_gradients(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The derivative of each sample's cross-entropy of `w z` with respect to w at w = 1: `sum_k p_k z_k - z_y`,
    `[batch]`."""
    own = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jnp.sum(jax.nn.softmax(logits) * logits, axis=1) - own


def invariance_penalty(logits: jax.Array, labels: jax.Array, members: jax.Array) -> jax.Array:
    """The mean over domains of `(d/dw CE(w z))_A (d/dw CE(w z))_B` at w = 1, A and B two halves of its samples.

    The product of two halves is an unbiased estimate of the squared derivative. The samples of a domain go to A and B
    alternately; a domain of one sample takes no part.

    Args:
      logits: z, `[batch, classes]`.
      labels: int32 `[batch]`.
      members: `[batch, domains]`.

    References:
      Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant risk minimization", 2019, IRMv1 and appendix D.
    """
    gradients, second = scale_gradients(logits, labels), ranks(members) % 2 == 1
    halves = (members * side.astype(members.dtype)[:, None] for side in (~second, second))
    product = jnp.prod(jnp.stack([domain_means(gradients, half) for half in halves]), axis=0)
    return masked_mean(product, present_domains(members, 2))


def ranks(members: jax.Array) -> jax.Array:
    """The place of each sample among those of its domain in the batch, from 0, int32 `[batch]`; -1 for padding."""
    return (jnp.sum(jnp.cumsum(members, axis=0) * members, axis=1) - 1).astype(jnp.int32)


def gradient_variances(
    features: jax.Array, logits: jax.Array, labels: jax.Array, members: jax.Array, bias: bool = True
) -> jax.Array:
    """The variance over a domain's samples of their gradients of cross-entropy with respect to the last layer.

    The gradient of sample i is `f_i (p_i - e_(y_i))^T` for the kernel and `p_i - e_(y_i)` for the bias; the variance of
    each number is the biased one, 1/n.

    Args:
      features: f, the last layer's inputs `[batch, m]`.
      logits: `[batch, classes]`.
      labels: int32 `[batch]`.
      members: `[batch, domains]`.
      bias: whether the layer has one.

    Returns:
      `[domains, m + 1, classes]`, the bias last; `[domains, m, classes]` without it.

    References:
      Rame, Dancette and Cord, "Fishr: invariant gradient variances for out-of-distribution generalization", ICML 2022,
      equation 3.
    """
    residual = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    inputs = jnp.pad(features, ((0, 0), (0, 1)), constant_values=1.0) if bias else features
    weights = members / jnp.maximum(jnp.sum(members, axis=0), 1)[None, :]
    squares = precise("bd,bm,bc->dmc", weights, jnp.square(inputs), jnp.square(residual))
    return jnp.maximum(squares - jnp.square(precise("bd,bm,bc->dmc", weights, inputs, residual)), 0)


def partners(key: jax.Array, members: jax.Array) -> jax.Array:
    """For each sample, the position in the batch of a sample of another domain, int32 `[batch]`.

    The domains of the batch are put in a random cyclic order; the k-th sample of each is paired with the k-th of the
    next, whose samples are repeated where it has fewer. A batch of one domain pairs every sample with itself, and so
    does padding.

    References:
      DomainBed, pairs of minibatches, which leaves out the further samples of a larger domain.
    """
    counts, place = jnp.sum(members, axis=0).astype(jnp.int32), jnp.arange(len(members))
    rank, real = ranks(members), jnp.sum(members, axis=1) > 0
    domain, kinds = jnp.argmax(members, axis=1), members.shape[1]
    table = jnp.zeros((kinds, len(members)), jnp.int32)
    table = table.at[jnp.where(real, domain, kinds), rank].set(place, mode="drop")
    circle = jnp.argsort(jnp.where(counts > 0, jax.random.uniform(key, (kinds,)), 2.0))
    following = circle[(jnp.argsort(circle) + 1) % jnp.maximum(jnp.sum(counts > 0), 1)][domain]
    return jnp.where(real, table[following, rank % jnp.maximum(counts[following], 1)], place)
