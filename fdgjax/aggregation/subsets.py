"""Distance-reweighted aggregation, and its consensus over several subsets of clients (RSCFed)."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import rows, sum_over_leaves
from fdgjax.aggregation.weighting import client_count, normalise_weights, per_row, weighted_sum
from fdgjax.contract import PyTree, Rule
from fdgjax.utils.registry import lookup

DISTANCES: Mapping[str, Callable[[PyTree], jax.Array]] = {
    "joint": lambda far: jnp.sqrt(sum_over_leaves(jax.tree.map(lambda u: jnp.sum(rows(u) ** 2, axis=1), far))),
    "tensors": lambda far: sum_over_leaves(jax.tree.map(lambda u: jnp.linalg.norm(rows(u), axis=1), far)),
}
"""Norms `[clients]` of differences `[clients, ...]`: over all leaves jointly, or the sum of the tensors' norms."""


@accepting_lists
def distance_reweighted(
    updates: PyTree,
    weights: PyTree | None = None,
    *,
    beta: float,
    sizes: jax.Array | float = 1.0,
    distance: str = "joint",
) -> tuple[PyTree, PyTree]:
    r"""The mean, reweighted by each update's distance from it.

        c_i = w_i exp(-beta |u_i - u| / n_i) / sum_j w_j exp(-beta |u_j - u| / n_j),    u = sum_i w_i u_i / sum_j w_j

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible.
      beta: 0 is the weighted mean.
      sizes: n, `[clients]` or one number for all; positive where the weight is.
      distance: entry of `DISTANCES`.

    Raises:
      UserError: unknown distance.

    References:
      Liang et al., "RSCFed: random sampling consensus federated semi-supervised learning", CVPR 2022, section 3.3
      (distance-reweighted model aggregation).
    """
    length = lookup("distance", distance, DISTANCES)
    shares = normalise_weights(weights, client_count(updates))
    per_leaf = jax.tree.broadcast(shares, updates)

    def apart(u: jax.Array, centre: jax.Array, share: jax.Array) -> jax.Array:
        return jnp.where(per_row(share == 0, u.ndim), 0, u.astype(jnp.float32) - centre[None].astype(jnp.float32))

    far = length(jax.tree.map(apart, updates, weighted_sum(updates, shares), per_leaf))

    def reweighted(share: jax.Array) -> jax.Array:
        counts = share > 0
        # Only differences of exponents matter; the largest is subtracted, so that not all exponentials underflow.
        exponents = jnp.where(counts, -beta * far / jnp.where(counts, sizes, 1), -jnp.inf)
        exponents -= jnp.max(exponents, initial=jnp.finfo(jnp.float32).min)
        return normalise_weights(jnp.where(counts, share * jnp.exp(exponents), 0), len(share))

    coefficients = jax.tree.map(reweighted, shares)
    return weighted_sum(updates, coefficients), coefficients


@accepting_lists
def mean_of_subsets(updates: PyTree, weights: jax.Array, *, members: jax.Array, rule: Rule) -> tuple[PyTree, jax.Array]:
    """The mean of a rule's results over several subsets of clients.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: `[clients]`.
      members: bool `[subsets, clients]`; a subset without a positive weight does not count.
      rule: its coefficients must be the factors of the updates.

    References:
      RSCFed, Algorithm 1.
    """
    each = jax.vmap(lambda chosen: rule(updates, jnp.where(chosen, weights, 0))[1])(members)
    counts = jnp.any(members & (weights > 0)[None], axis=1).astype(jnp.float32)
    coefficients = normalise_weights(counts, len(counts)) @ each
    return weighted_sum(updates, coefficients), coefficients
