"""Personalised aggregation by similarity: each client gets a mixture of the parameters similar to its own (FDSE)."""

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import counting_clients
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import gram, scale_rows, sum_over_leaves
from fdgjax.aggregation.weighting import client_count, in_dtype, keep_rows
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


@accepting_lists
def attention(
    params: PyTree, weights: jax.Array | None = None, *, tau: float, scope: str = "leaf"
) -> tuple[PyTree, PyTree]:
    r"""Attention of every client over all clients.

        A_ij = exp(cos(p_i, p_j) / tau) / sum_k exp(cos(p_i, p_k) / tau),    p_i <- sum_j A_ij p_j

    The cosine with a zero vector counts as zero.

    Args:
      params: pytree of `[clients, ...]`, parameters themselves, not updates.
      weights: None or `[clients]`; clients with weight zero are invisible to the others, whatever they sent, and keep
        what they have. Other values have no effect.
      tau: temperature; the smaller, the more a client keeps its own parameters.
      scope: `"leaf"` compares each leaf by itself (FDSE), `"tree"` all leaves together.

    Returns:
      `(personal, weights)`: a tree like `params`, and A `[clients, clients]` (one per leaf for `"leaf"`).

    Raises:
      UserError: unknown scope, or tau not positive.

    References:
      FDSE, section 4.3.2.
    """
    if not tau > 0:
        raise UserError(f"attention got tau={tau}; expected a positive number")
    clients = client_count(params)
    counts = counting_clients(weights, clients)
    looks_at = jnp.eye(clients, dtype=bool) | (counts[:, None] & counts[None])
    seen = jax.tree.map(lambda leaf: scale_rows(leaf, counts), params)
    products = lookup("scope", scope, {"leaf": each_leaf, "tree": all_leaves})(seen)
    mixture = jax.tree.map(lambda g: jax.nn.softmax(attention_cosines(g) / tau, axis=1, where=looks_at), products)
    mixed = jax.tree.map(mixed_leaf, jax.tree.broadcast(mixture, params), seen)
    return keep_rows(counts, mixed, params), mixture


def each_leaf(params: PyTree) -> PyTree:
    """Inner products of the clients, for each leaf."""
    return jax.tree.map(gram, params)


def all_leaves(params: PyTree) -> jax.Array:
    """Inner products of the clients over all leaves."""
    return sum_over_leaves(each_leaf(params))


def attention_cosines(products: jax.Array) -> jax.Array:
    """Cosines from inner products, `[clients, clients]`."""
    lengths = jnp.sqrt(jnp.diagonal(products))
    both = lengths[:, None] * lengths[None]
    return jnp.where(both > 0, products / jnp.where(both > 0, both, 1), 0)


def mixed_leaf(weights: jax.Array, leaf: jax.Array) -> jax.Array:
    """`sum_j A_ij p_j`, summed in float32 and returned in the leaf's dtype."""
    return in_dtype(jnp.tensordot(weights, leaf.astype(jnp.float32), axes=1), leaf.dtype)
