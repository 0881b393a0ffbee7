"""Weights that sum to one, and weighted sums over the client axis, for all rules."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError


def normalise_weights(weights: PyTree | None, clients: int) -> PyTree:
    """Weights `[clients]` (or a prefix tree of them) divided by their sum; uniform for None.

    Weights that are all zero stay zero, so that where no client counts the sum is zero.

    Raises:
      UserError: like `check_weights`.
    """
    check_weights(weights, clients)
    if weights is None:
        weights = jnp.ones(clients, jnp.float32)

    def to_one(w: jax.Array) -> jax.Array:
        w = w.astype(jnp.float32)
        total = jnp.sum(w)
        return w / jnp.where(total == 0, 1, total)

    return jax.tree.map(to_one, weights)


def check_weights(weights: PyTree | None, clients: int) -> None:
    """Raises a `UserError` for weights that are not one number for each client."""
    wrong = [np.shape(w) for w in jax.tree.leaves(weights) if np.shape(w) != (clients,)]
    # Updates without leaves do not say how many clients there are.
    if clients and wrong:
        raise UserError(
            f"a rule got weights of shape {list(wrong[0])} for {clients} clients; expected None, or an array "
            f"[{clients}], such as numpy.asarray([1.0, 2.0, ...])"
        )


def in_dtype(sums: jax.Array, dtype: Any) -> jax.Array:
    """Float32 sums in the dtype of what was summed. Integers, such as a network's count of its steps, are rounded: a
    mean of equal ones may come out just below them."""
    return (jnp.round(sums) if jnp.issubdtype(dtype, jnp.integer) else sums).astype(dtype)


# Jitted even where the caller is not: JAX would compile `cond` anew in each call.
@jax.jit
def weighted_sum(updates: PyTree, coefficients: PyTree) -> PyTree:
    """`sum_i c_i u_i` for each leaf, summed in float32 and returned in the leaf's dtype (see `in_dtype`).

    A client with coefficient zero has no effect whatever it sent, infinities and NaN included.
    """
    per_leaf = jax.tree.broadcast(coefficients, updates)

    def total(u: jax.Array, c: jax.Array) -> jax.Array:
        return jnp.tensordot(c.astype(jnp.float32), u.astype(jnp.float32), axes=1)

    def visible(u: jax.Array, c: jax.Array) -> jax.Array:
        return jnp.where(per_row(c, u.ndim) == 0, 0, u)

    # A client of coefficient zero affects the sums only by numbers that are not finite. It is masked only then, as that
    # costs a second copy of all updates and several times the sum.
    sums = jax.tree.map(total, updates, per_leaf)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(s)) for s in jax.tree.leaves(sums)]))
    sums = jax.lax.cond(
        finite, lambda: sums, lambda: jax.tree.map(total, jax.tree.map(visible, updates, per_leaf), per_leaf)
    )
    return jax.tree.map(lambda s, u: in_dtype(s, u.dtype), sums, updates)


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
