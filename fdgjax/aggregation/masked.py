"""The elementwise mean over the clients whose mask is set."""

import jax
import jax.numpy as jnp

from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.weighting import client_count, in_dtype, normalise_weights, per_row
from fdgjax.contract import PyTree


@accepting_lists
def masked_update_mean(updates: PyTree, masks: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
    r"""`u[j] = sum_i w_i m_i[j] u_i[j] / sum_i w_i m_i[j]` for every element j; zero where no client's mask is set.

    Args:
      updates: pytree of `[clients, ...]`.
      masks: the same with boolean leaves.
      weights: None, `[clients]` or a prefix tree of such; clients with weight zero are invisible.

    Returns:
      `(update, coefficients)`, the coefficients being the normalised weights before the masks.

    References:
      Chen et al., "Fair federated learning under domain skew with local consistency and domain diversity", 2024.
    """
    shares = normalise_weights(weights, client_count(updates))

    def one(u: jax.Array, mask: jax.Array, share: jax.Array) -> jax.Array:
        counted = jnp.where(mask, per_row(share, u.ndim), 0)
        total = jnp.sum(counted, axis=0)
        seen = jnp.where(counted == 0, 0, counted * u.astype(jnp.float32))
        return in_dtype(jnp.sum(seen, axis=0) / jnp.where(total == 0, 1, total), u.dtype)

    return jax.tree.map(one, updates, masks, jax.tree.broadcast(shares, updates)), shares
