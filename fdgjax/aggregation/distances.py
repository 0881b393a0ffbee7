"""Distances between the clients' updates, and from a point that is a combination of them, by inner products alone."""

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.aggregation.updates import Pairs, Updates, power_of_two
from fdgjax.aggregation.weighting import check_weights
from fdgjax.contract import PyTree

RESOLUTION = 1e-6
"""The share of the usual distance below which two updates count as equal: float32 does not tell them apart."""
LEAST = 1e-30
"""A distance below which everything is equal, so that nothing is divided by zero."""


def counting_clients(weights: PyTree | None, clients: int) -> jax.Array:
    """Which clients count, bool `[clients]`: those whose weight is positive, in every leaf where weights are a tree.

    The size of a weight has no effect, as a hostile client would claim many samples.

    Raises:
      UserError: like `check_weights`.
    """
    check_weights(weights, clients)
    if weights is None:
        return jnp.ones(clients, bool)
    return jnp.all(jnp.stack([jnp.asarray(w) > 0 for w in jax.tree.leaves(weights)]), axis=0)


def pairs_of(updates: Updates, counts: jax.Array) -> Pairs:
    """The norms and cosines of those who count; zero for the others, whatever they sent."""
    pairs = updates.pairs()
    both = counts[:, None] & counts[None]
    return Pairs(jnp.where(counts, pairs.norms, 0), jnp.where(both, jnp.clip(pairs.cosines, -1, 1), 0))


def distances(pairs: Pairs, counts: jax.Array) -> jax.Array:
    """`|u_i - u_j|`, `[clients, clients]`; infinite to itself and to those who do not count.

    By the ratio of the norms, `max * sqrt(1 + r^2 - 2 r cos)`, no square overflows.
    """
    large, small = (of(pairs.norms[:, None], pairs.norms[None]) for of in (jnp.maximum, jnp.minimum))
    ratio = small / jnp.where(large > 0, large, 1)
    far = large * jnp.sqrt(jnp.maximum(1 + ratio**2 - 2 * ratio * pairs.cosines, 0))
    others = counts[:, None] & counts[None] & ~np.eye(len(counts), dtype=bool)
    return jnp.where(others, far, jnp.inf)


def from_point(pairs: Pairs, coefficients: jax.Array) -> jax.Array:
    """`|u_i - sum_j c_j u_j|`, `[clients]`."""
    steps = (jnp.eye(len(coefficients), dtype=jnp.float32) - coefficients[None]) * pairs.norms[None]
    power, inverse = power_of_two(jnp.max(jnp.abs(steps), axis=1))
    near_one = steps * inverse[:, None]
    return power * jnp.sqrt(jnp.maximum(jnp.sum((near_one @ pairs.cosines) * near_one, axis=1), 0))


def lower_median(values: jax.Array, counts: jax.Array) -> jax.Array:
    """The median of the values that count, the lower of the two middle ones for an even number; over the last axis."""
    place = jnp.maximum(jnp.sum(counts, axis=-1, keepdims=True) - 1, 0) // 2
    return jnp.take_along_axis(jnp.sort(jnp.where(counts, values, jnp.inf), axis=-1), place, axis=-1)[..., 0]


def inverse_shares(far: jax.Array, counts: jax.Array) -> jax.Array:
    """Shares `[clients]` in proportion to `1 / distance`, none for those who do not count."""
    usual = lower_median(far, counts)
    floor = jnp.maximum(jnp.where(jnp.isfinite(usual), RESOLUTION * usual, 0), LEAST)
    # A client that is alone has infinite distances, and the whole share.
    raised = jnp.where(counts, floor / jnp.clip(far, floor, 1e30), 0)
    return raised / jnp.maximum(jnp.sum(raised), jnp.finfo(jnp.float32).tiny)


def amid_others(pairs: Pairs, counts: jax.Array) -> jax.Array:
    """Shares `[clients]` in proportion to `1 / (median distance from the others)`: a robust point to begin from.

    With fewer than half of the clients hostile, the median distance of an honest client is at most its largest distance
    from honest ones, and that of a hostile client at least its distance from the nearest honest one.
    """
    far = distances(pairs, counts)
    return inverse_shares(lower_median(far, jnp.isfinite(far)), counts)
