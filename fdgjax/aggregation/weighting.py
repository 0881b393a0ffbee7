"""Weights that sum to one, and weighted sums over the client axis, for all rules."""

import jax
import jax.numpy as jnp

from fdgjax.contract import PyTree


def normalise(weights: PyTree | None, clients: int) -> PyTree:
    """Weights `[clients]` (or a prefix tree of them) divided by their sum; uniform for None.

    Weights that are all zero stay zero, so that a round without a counted client changes nothing.
    """
    if weights is None:
        weights = jnp.ones(clients, jnp.float32)

    def to_one(w: jax.Array) -> jax.Array:
        w = w.astype(jnp.float32)
        total = jnp.sum(w)
        return w / jnp.where(total == 0, 1, total)

    return jax.tree.map(to_one, weights)


def weighted_sum(updates: PyTree, coefficients: PyTree) -> PyTree:
    """`sum_i c_i u_i` for each leaf, summed in float32 and returned in the leaf's dtype.

    A client with coefficient zero has no effect whatever it sent, infinities and NaN included.
    """

    def one(u: jax.Array, c: jax.Array) -> jax.Array:
        column = per_row(c, u.ndim)
        seen = jnp.where(column == 0, 0, u.astype(jnp.float32))
        return jnp.tensordot(c.astype(jnp.float32), seen, axes=1).astype(u.dtype)

    return jax.tree.map(one, updates, jax.tree.broadcast(coefficients, updates))


def per_row(values: jax.Array, ndim: int) -> jax.Array:
    """One value per client, `[clients]`, shaped `[clients, 1, ...]` to meet a leaf of `ndim` axes."""
    return values.reshape(values.shape + (1,) * (ndim - 1))


def keep_rows(keep: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Rows of `new` where `keep` `[clients]`, else of `old`."""
    return jax.tree.map(lambda a, b: jnp.where(per_row(keep, a.ndim), a, b), new, old)


def client_count(updates: PyTree) -> int:
    """The length of the client axis; zero for a tree without leaves."""
    leaves = jax.tree.leaves(updates)
    return len(leaves[0]) if leaves else 0
