"""Krum and multi-Krum: the updates that are nearest to their neighbours (Blanchard et al., 2017)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import RESOLUTION, counting_clients, distances, pairs_of
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import Updates, explicit, power_of_two
from fdgjax.contract import PyTree


@accepting_lists
def krum(updates: PyTree, weights: PyTree | None = None, *, hostile: int = 1) -> tuple[PyTree, PyTree]:
    r"""The update with the least sum of squared distances from its nearest neighbours.

    With m clients that count, f of them hostile, and `N_i` the m - f - 2 (at least one) updates nearest to `u_i`,

        s_i = sum_{j in N_i} |u_i - u_j|^2,    u = u_k with the least s_k.

    Scores that are equal up to the rounding of float32 are averaged, so that the order of the clients does not matter
    (two clients that are each other's only neighbour have equal ones).

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
    pairs = pairs_of(updates, counts)
    least, most = score_bounds(pairs.norms, distances(pairs, counts), jnp.maximum(many - hostile - 2, 1))
    last = jnp.sort(jnp.where(counts, most, jnp.inf))[jnp.clip(keep(many), 1, jnp.maximum(many, 1)) - 1]
    chosen = (counts & (least <= last)).astype(jnp.float32)
    shares = chosen / jnp.maximum(jnp.sum(chosen), 1)
    return updates.combine(shares), shares


def score_bounds(norms: jax.Array, far: jax.Array, neighbours: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The least and the most that the root of each score may be, `[clients]`, as far as float32 knows.

    A squared distance comes from `|u_i|^2` and `|u_j|^2`, whose rounding it has: it is uncertain by a share of them,
    not of itself. Both norms are at most `|u_i| + |u_i - u_j|`.

    Args:
      norms: `|u_i|`, `[clients]`.
      far: the distances, `[clients, clients]`, infinite where there is none.
      neighbours: how many of the nearest count.
    """
    nearest_first = jnp.sort(far, axis=1)
    counted = (jnp.arange(len(norms))[None] < neighbours) & jnp.isfinite(nearest_first)
    near = jnp.where(counted, nearest_first, 0)
    # All numbers of a row are divided by one power of two, so that no square overflows.
    power, inverse = power_of_two(jnp.maximum(norms, jnp.max(near, axis=1)))
    norms, near = norms * inverse, near * inverse[:, None]
    squares = jnp.sum(near**2, axis=1)
    rounding = RESOLUTION * jnp.sum(jnp.where(counted, norms[:, None] + near, 0) ** 2, axis=1)
    return power * jnp.sqrt(jnp.maximum(squares - rounding, 0)), power * jnp.sqrt(squares + rounding)
