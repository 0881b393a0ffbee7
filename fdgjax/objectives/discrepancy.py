"""Maximum mean discrepancy, and UAP's contrastive domain discrepancy: samples near their own class's distribution."""

from functools import partial

import jax
import jax.numpy as jnp

IDENTICAL = 1e-30
"""Mean squared distance up to which samples count as identical, so that every kernel value is 1."""


def mmd(
    x: jax.Array,
    y: jax.Array,
    x_mask: jax.Array | None = None,
    y_mask: jax.Array | None = None,
    *,
    kernels: int = 5,
    factor: float = 2.0,
) -> jax.Array:
    """`mean_ij k(x_i, x_j) + mean_ij k(y_i, y_j) - 2 mean_ij k(x_i, y_j)`, the squared distance of the mean embeddings.

    k is the sum of Gaussian kernels `exp(-|x - y|^2 / g_j)` with `g_j = g factor^(j - kernels // 2)`, j = 0, 1, ...;
    g is the mean squared distance of two different samples out of x and y pooled, and has no gradient. The means
    include i = j, so that the estimate is not negative, and biased by O(1/n). It is 0 where x or y has no sample.

    Args:
      x, y: samples, `[n, m]` and `[n', m]`.
      x_mask, y_mask: 1 for a sample, 0 for padding, `[n]` and `[n']`; without them all are samples.
      kernels: number of kernels.
      factor: of the bandwidth, from one kernel to the next.

    References:
      Gretton et al., "A kernel two-sample test", 2012, equation 5; the kernels are those of UAP's reference [13].
    """
    members = [_weights(x, x_mask)[:, None], _weights(y, y_mask)[:, None]]
    return _class_discrepancies(x, members[0], y, members[1], kernels, factor)[0, 0]


def contrastive_domain_discrepancy(
    source: jax.Array,
    source_labels: jax.Array,
    target: jax.Array,
    target_labels: jax.Array,
    *,
    classes: int,
    source_mask: jax.Array | None = None,
    target_mask: jax.Array | None = None,
    chosen: jax.Array | None = None,
    kernels: int = 5,
    factor: float = 2.0,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """`sum_k M[k, k] / |C| - sum_(k != l) M[k, l] / (|C| (|C| - 1))`, UAP, equation 3.

    `M[k, l]` is the `mmd` between class k of the source and class l of the target, with a bandwidth of its own, and C
    the classes that are chosen and have samples on both sides. The first sum is 0 without any such class, the second
    with fewer than two. Gradients go to the source and to the target.

    Time and memory are O(n^2 (m + kernels K)).

    Args:
      source, target: features, `[n, m]` and `[n', m]`; in UAP a batch's, and draws from the classes' Gaussians.
      source_labels, target_labels: integers in [0, classes), `[n]` and `[n']`; others belong to no class.
      classes: K.
      source_mask, target_mask: 1 for a sample, 0 for padding.
      chosen: C' of the paper, bool `[K]`; all classes without it. See `random_classes`.
      kernels, factor: as in `mmd`.

    Returns:
      The loss, and its parts `{"intra": first sum, "inter": second sum}`; scalars.
    """
    members = [
        _weights(features, mask)[:, None] * jax.nn.one_hot(labels, classes, dtype=features.dtype)
        for features, labels, mask in ((source, source_labels, source_mask), (target, target_labels, target_mask))
    ]
    counted = (jnp.sum(members[0], axis=0) > 0) & (jnp.sum(members[1], axis=0) > 0)
    counted = counted if chosen is None else counted & chosen
    weights = counted.astype(source.dtype)
    number = jnp.sum(weights)
    every = _class_discrepancies(source, members[0], target, members[1], kernels, factor)
    same = jnp.sum(weights * jnp.diagonal(every))
    different = jnp.sum(jnp.outer(weights, weights) * every * (1 - jnp.eye(classes, dtype=source.dtype)))
    intra, inter = same / jnp.maximum(number, 1), different / jnp.maximum(number * (number - 1), 1)
    return intra - inter, {"intra": intra, "inter": inter}


def random_classes(key: jax.Array, present: jax.Array, size: int) -> jax.Array:
    """A uniformly random subset of `size` of the classes that are present, bool `[K]` (C' of UAP, equation 3).

    Args:
      key: of the draw.
      present: bool, `[K]`.
      size: of the subset; all classes that are present if they are fewer, or if it is 0.
    """
    if not size:
        return present
    draws = jnp.where(present, jax.random.uniform(key, present.shape), 2.0)
    return present & (jnp.argsort(jnp.argsort(draws)) < size)


def _weights(features: jax.Array, mask: jax.Array | None) -> jax.Array:
    return jnp.ones(features.shape[:1], features.dtype) if mask is None else mask.astype(features.dtype)


def _class_discrepancies(
    source: jax.Array,
    source_members: jax.Array,
    target: jax.Array,
    target_members: jax.Array,
    kernels: int,
    factor: float,
) -> jax.Array:
    """`mmd` of each pair of classes, `[K, K]`, 0 where one has no sample.

    A member's row of `*_members`, `[n, K]`, is 1 at its class and 0 elsewhere, that of padding all 0.
    """
    s, t = source_members, target_members
    source, target = (jnp.where(jnp.any(w > 0, axis=1, keepdims=True), z, 0) for z, w in ((source, s), (target, t)))
    ss, tt, st = (_squared_distances(a, b) for a, b in ((source, source), (target, target), (source, target)))
    s_count, t_count = jnp.sum(s, axis=0)[:, None], jnp.sum(t, axis=0)[None, :]
    pooled = s_count + t_count
    total = _paired(s, ss, s).diagonal()[:, None] + _paired(t, tt, t).diagonal()[None, :] + 2 * _paired(s, st, t)
    g = jax.lax.stop_gradient(total / jnp.maximum(pooled * (pooled - 1), 1))
    # A pair of samples across the two sets belongs to one pair of classes, and so has one bandwidth; a pair within a
    # set has one for each class of the other set.
    across = _paired(s, _kernel(st, _paired(s.T, g, t.T), kernels, factor), t)
    within = _within(s, ss, g, kernels, factor), _within(t, tt, g.T, kernels, factor).T
    s_some, t_some = jnp.maximum(s_count, 1), jnp.maximum(t_count, 1)
    found = within[0] / s_some**2 + within[1] / t_some**2 - 2 * across / (s_some * t_some)
    return jnp.where((s_count > 0) & (t_count > 0), found, 0)


@jax.checkpoint
def _squared_distances(x: jax.Array, y: jax.Array) -> jax.Array:
    """`|x_i - y_j|^2`, `[n, n']`, by differences: `|x|^2 + |y|^2 - 2 x.y` loses the small distances inside a class."""
    return jnp.sum(jnp.square(x[:, None, :] - y[None, :, :]), axis=-1)


def _paired(left: jax.Array, values: jax.Array, right: jax.Array) -> jax.Array:
    """`left^T values right` in full precision; accelerators use a reduced one by default."""
    return jnp.einsum("ik,ij,jl->kl", left, values, right, precision=jax.lax.Precision.HIGHEST)


# Recomputed for the gradient: storing its terms would take `kernels` arrays [n, n, K], and is slower, too.
@partial(jax.checkpoint, static_argnums=(2, 3))
def _kernel(distances: jax.Array, bandwidth: jax.Array, kernels: int, factor: float) -> jax.Array:
    # The bandwidth of identical samples and of padding is 0: 0 / 1 replaces 0 / 0, which has no gradient.
    ratio = distances / jnp.where(bandwidth > IDENTICAL, bandwidth, 1)
    return sum((jnp.exp(-ratio * factor ** (kernels // 2 - j)) for j in range(kernels)), jnp.zeros_like(ratio))


def _within(members: jax.Array, distances: jax.Array, g: jax.Array, kernels: int, factor: float) -> jax.Array:
    """`sum_(i, j in class k) k(z_i, z_j)` with the bandwidth `g[k, l]`, `[K, K]`."""
    precise = jax.lax.Precision.HIGHEST
    bandwidths = jnp.matmul(members, g, precision=precise)
    same = jnp.matmul(members, members.T, precision=precise)
    values = _kernel(distances[:, :, None], bandwidths[:, None, :], kernels, factor)
    return jnp.matmul(members.T, jnp.sum(same[:, :, None] * values, axis=1), precision=precise)
