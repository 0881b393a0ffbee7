"""Nearest-neighbour mixing: averages similar updates before a robust rule, for honest clients that differ."""

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.aggregation.attention import mixed_leaf
from fdgjax.aggregation.distances import RESOLUTION, counting_clients, distances, pairs_of
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import explicit, scale_rows
from fdgjax.aggregation.weighting import client_count
from fdgjax.contract import PyTree


@accepting_lists
def nearest_neighbour_mixing(
    updates: PyTree, weights: PyTree | None = None, *, hostile: int = 1
) -> tuple[PyTree, jax.Array]:
    r"""Each update becomes the mean of the m - f updates nearest to it, itself among them.

    With m clients that count, f of them hostile, and `N_i` the m - f nearest to `u_i`,

        y_i = 1/(m - f) sum_{j in N_i} u_j.

    On the `y_i`, every robust rule is as near to the honest mean as any rule can be: what honest clients of different
    domains have in common is in every `y_i`, so that none looks hostile. Distances that are equal up to
    rounding are averaged, so that the order of the clients does not matter.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; a client counts where its weight is positive.
      hostile: f.

    Returns:
      `(mixed, shares)`: a tree like `updates`, and the shares `[clients, clients]` of the updates in each, whose rows
      sum to one; a client that does not count gets zeros, whatever it sent.

    References:
      Allouah et al., "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023,
      Algorithm 2 (NNM).
    """
    clients = client_count(updates)
    counts = counting_clients(weights, clients)
    itself = np.eye(clients, dtype=bool)
    far = jnp.where(itself, 0, distances(pairs_of(explicit(updates), counts), counts))
    place = jnp.clip(jnp.sum(counts) - hostile - 1, 0, clients - 1)
    last = (1 + RESOLUTION) * jnp.sort(far, axis=1)[:, place]
    near = jnp.where(counts[:, None], counts[None] & (far <= last[:, None]), itself).astype(jnp.float32)
    shares = near / jnp.sum(near, axis=1, keepdims=True)
    return jax.tree.map(lambda u: mixed_leaf(shares, scale_rows(u, counts)), updates), shares
