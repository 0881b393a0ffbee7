"""Krum and multi-Krum: the updates that are nearest to their neighbours (Blanchard et al., 2017)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import counting_clients, distances, pairs_of
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.contract import PyTree

TIE = 1e-3
"""Relative difference up to which scores count as equal: float32 resolves distances between similar updates no
better."""


@accepting_lists
def krum(updates: PyTree, weights: PyTree | None = None, *, hostile: int = 1) -> tuple[PyTree, PyTree]:
    r"""The update with the least sum of squared distances from its nearest neighbours.

    With m clients that count, f of them hostile, and `N_i` the m - f - 2 (at least one) updates nearest to `u_i`,

        s_i = sum_{j in N_i} |u_i - u_j|^2,    u = u_k with the least s_k.

    Equal scores are averaged, so that the order of the clients does not matter (two clients that are each other's only
    neighbour have equal ones).

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; a client counts where its weight is positive.
      hostile: f; the paper's guarantee is for m >= 2f + 3.

    Returns:
      `(update, shares)`; the shares `[clients]` sum to one.

    References:
      Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent", NeurIPS 2017, section
      4.
    """
    return nearest(explicit(updates), weights, hostile=hostile, keep=jnp.ones_like)


@accepting_lists
def multi_krum(updates: PyTree, weights: PyTree | None = None, *, hostile: int = 1) -> tuple[PyTree, PyTree]:
    """The mean of the m - f updates with the least scores; arguments and results are those of `krum`.

    References:
      Blanchard et al., 2017, section 6 (Multi-Krum); m - f is the largest number that excludes every hostile client.
    """
    return nearest(explicit(updates), weights, hostile=hostile, keep=lambda many: jnp.maximum(many - hostile, 1))


def nearest(
    updates: Updates, weights: PyTree | None, *, hostile: int, keep: Callable[[jax.Array], jax.Array]
) -> tuple[PyTree, PyTree]:
    """The mean of the `keep(m)` updates of the least scores; `krum` of `Updates`, which need not be materialised."""
    counts = counting_clients(weights, updates.clients)
    many = jnp.sum(counts)
    far = jnp.sort(distances(pairs_of(updates, counts), counts), axis=1)
    neighbours = jnp.arange(updates.clients)[None] < jnp.maximum(many - hostile - 2, 1)
    near = jnp.where(neighbours & jnp.isfinite(far), far, 0)
    largest = jnp.max(near, axis=1)
    # The root of the score, as the largest distance times a number near one: no square overflows.
    root = largest * jnp.sqrt(jnp.sum((near / jnp.where(largest > 0, largest, 1)[:, None]) ** 2, axis=1))
    score = jnp.where(counts, root, jnp.inf)
    last = jnp.sort(score)[jnp.maximum(jnp.minimum(keep(many), many) - 1, 0)]
    chosen = counts & (score <= last * (1 + TIE))
    chosen = chosen.astype(jnp.float32)
    shares = chosen / jnp.maximum(jnp.sum(chosen), 1)
    return updates.combine(shares), shares
