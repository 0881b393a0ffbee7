"""Lengths and angles of the clients' updates, for rules that look for a point in their convex hull."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.aggregation.weighting import keep_rows, normalise_weights
from fdgjax.contract import PyTree


class Directions(NamedTuple):
    """The geometry of the updates of clients with a positive weight; lengths and cosines of the others are zero.

    shares: the weights, which sum to one, `[clients]` or a prefix tree of such. share: their mean over the leaves,
    `[clients]`. seen: whether that is positive, `[clients]`. lengths: `|u_i|`, `[clients]`. cosines:
    `[clients, clients]`.
    """

    shares: PyTree
    share: jax.Array
    seen: jax.Array
    lengths: jax.Array
    cosines: jax.Array

    def relative_gram(self) -> jax.Array:
        """`<u_i, u_j>` in units of the longest update's squared length, `[clients, clients]`, at any scale."""
        longest = jnp.max(self.lengths)
        relative = self.lengths / jnp.where(longest > 0, longest, 1)
        return self.cosines * relative[:, None] * relative[None]


def directions_of(updates: Updates, weights: PyTree | None) -> Directions:
    """The geometry of updates with weights: None, `[clients]` or a prefix tree of such."""
    shares = normalise_weights(weights, updates.clients)
    each = jax.tree.leaves(shares)
    share = jnp.mean(jnp.stack(each), axis=0)
    lengths, cosines = (updates if len(each) == 1 else visible(updates, shares)).pairs()
    seen = share > 0
    cosines = jnp.where(seen[:, None] & seen[None], cosines, 0)
    return Directions(shares, share, seen, jnp.where(seen, lengths, 0), cosines)


def combined(updates: Updates, coefficients: jax.Array, shares: PyTree) -> tuple[PyTree, PyTree]:
    """`sum_i c_i u_i`, on each leaf over the clients that have a share of it, and the factors that were used."""
    used = jax.tree.map(lambda one: jnp.where(one > 0, coefficients, 0), shares)
    return updates.combine(used), used


def visible(updates: Updates, shares: PyTree) -> Updates:
    """The updates with zeros where a leaf's own share is zero."""
    stacked = updates.stacked()
    return explicit(
        jax.tree.map(
            lambda u, share: keep_rows(share > 0, u, jnp.zeros_like(u)), stacked, jax.tree.broadcast(shares, stacked)
        )
    )
