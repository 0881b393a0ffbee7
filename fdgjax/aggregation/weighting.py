"""What every rule shares: weights that sum to one, weighted sums over the client axis, and the scope of a rule."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from fdgjax.contract import PyTree, Rule


def normalise(weights: PyTree | None, updates: PyTree) -> PyTree:
    """Weights `[clients]` (or a prefix tree of them) divided by their sum; uniform for None.

    Weights that are all zero stay zero, so that a round in which nobody counts changes nothing.
    """
    if weights is None:
        clients = len(jax.tree.leaves(updates)[0])
        weights = jnp.ones(clients, jnp.float32)

    def to_one(w: jax.Array) -> jax.Array:
        w = w.astype(jnp.float32)
        total = jnp.sum(w)
        return w / jnp.where(total == 0, 1, total)

    return jax.tree.map(to_one, weights)


def weighted_sum(updates: PyTree, coefficients: PyTree) -> PyTree:
    """`sum_i c_i u_i` for each leaf, summed in float32 and returned in the leaf's dtype.

    A client with coefficient zero is invisible whatever it sent, infinities and NaN included.
    """

    def one(u: jax.Array, c: jax.Array) -> jax.Array:
        column = c.reshape(c.shape + (1,) * (u.ndim - 1))
        seen = jnp.where(column == 0, 0, u.astype(jnp.float32))
        return jnp.tensordot(c.astype(jnp.float32), seen, axes=1).astype(u.dtype)

    return jax.tree.map(one, updates, jax.tree.broadcast(coefficients, updates))


def leaf_scope(rule: Rule) -> Rule:
    """The rule applied to each leaf by itself; its coefficients become a tree with one `[clients]` per leaf."""

    def per_leaf(updates: PyTree, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        leaves, treedef = jax.tree.flatten(updates)
        shares = jax.tree.leaves(jax.tree.broadcast(normalise(weights, updates), updates))
        results = [rule(leaf, share) for leaf, share in zip(leaves, shares, strict=True)]
        updates, coefficients = zip(*results, strict=True)
        return jax.tree.unflatten(treedef, updates), jax.tree.unflatten(treedef, coefficients)

    return per_leaf


def tree_scope(rule: Rule) -> Rule:
    """The rule applied to all leaves together."""
    return rule


SCOPES: Mapping[str, Callable[[Rule], Rule]] = {"tree": tree_scope, "leaf": leaf_scope}
