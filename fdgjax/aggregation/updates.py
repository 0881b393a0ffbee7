"""Clients' updates as a rule sees them, whether or not they are materialised.

A rule needs only sums `sum_i c_i u_i`, inner products `<u_i, d>` and norms `|u_i|`. A stack of arrays gives these
directly (`explicit`). Gradients pulled back through a large server model give them without memory for one server
gradient per client (`fdgjax.aggregation.gradients`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import client_count, in_dtype, per_row, weighted_sum
from fdgjax.contract import PyTree


class Updates(NamedTuple):
    """The operations on the clients' updates that a rule may use.

    clients: their number.
    combine: `(coefficients [clients] or prefix tree) -> sum_i c_i u_i`.
    inner: `(direction) -> <u_i, d>`, `[clients]`.
    norms: `() -> |u_i|`, `[clients]`.
    pairs: `() -> (|u_i|, cos(u_i, u_j))`.
    stacked: `() -> pytree of [clients, ...]`, materialised.
    by_pairs: whether `pairs` costs less than a combined update and its inner products.
    """

    clients: int
    combine: Callable[[PyTree], PyTree]
    inner: Callable[[PyTree], jax.Array]
    norms: Callable[[], jax.Array]
    pairs: Callable[[], "Pairs"]
    stacked: Callable[[], PyTree]
    by_pairs: bool = False


class Pairs(NamedTuple):
    """All inner products between the updates, as norms and cosines, so that none overflows.

    norms: `|u_i|`, `[clients]`.
    cosines: `cos(u_i, u_j)`, `[clients, clients]`; zero with a zero vector.
    """

    norms: jax.Array
    cosines: jax.Array


def explicit(updates: PyTree) -> Updates:
    """Updates materialised as a pytree of `[clients, ...]`."""
    return Updates(
        clients=client_count(updates),
        combine=partial(weighted_sum, updates),
        inner=partial(inner_products, updates),
        norms=partial(row_norms, updates),
        pairs=partial(row_pairs, updates),
        stacked=lambda: updates,
    )


def concatenated(parts: Any) -> Updates:
    """Several parts of the same clients' updates as one vector; `parts` is a NamedTuple of `Updates`, and a combined
    update is a NamedTuple of that kind."""
    kind = type(parts)
    return Updates(
        clients=parts[0].clients,
        combine=lambda coefficients: kind(*(part.combine(coefficients) for part in parts)),
        inner=lambda direction: sum_over_leaves([p.inner(d) for p, d in zip(parts, direction, strict=True)]),
        norms=lambda: row_norms([part.norms() for part in parts]),
        pairs=lambda: joined_pairs([part.pairs() for part in parts]),
        stacked=lambda: kind(*(part.stacked() for part in parts)),
        by_pairs=any(part.by_pairs for part in parts),
    )


def joined_pairs(parts: Sequence[Pairs]) -> Pairs:
    """The pairs of joined parts: each counts by its shares of the norms, `cos = sum_p (n_pi/n_i) (n_pj/n_j) cos_p`."""
    norms = row_norms([part.norms for part in parts])
    shares = [jnp.where(norms > 0, part.norms / jnp.where(norms > 0, norms, 1), 0) for part in parts]
    return Pairs(norms, sum_over_leaves([p.cosines * s[:, None] * s[None] for p, s in zip(parts, shares, strict=True)]))


def regrouped(updates: Updates, *, outward: Callable[[PyTree], PyTree], inward: Callable[[PyTree], PyTree]) -> Updates:
    """The same updates as trees of another structure: `outward` converts a combined update to it, `inward` is its
    inverse."""
    return updates._replace(
        combine=lambda coefficients: outward(updates.combine(coefficients)),
        inner=lambda direction: updates.inner(inward(direction)),
        stacked=lambda: outward(updates.stacked()),
    )


def rows(leaf: jax.Array) -> jax.Array:
    """One row per client, `[clients, numbers]`, in float32."""
    return leaf.reshape(len(leaf), -1).astype(jnp.float32)


FEW_NUMBERS = 2**14
"""Numbers per client up to which a leaf is concatenated with others."""


def few_rows(updates: PyTree) -> list[jax.Array]:
    """`rows` of all leaves, the small ones concatenated into one array: every operation is compiled once for each
    array, and small leaves are many."""
    every = [rows(leaf) for leaf in jax.tree.leaves(updates)]
    small = [u for u in every if u.shape[1] <= FEW_NUMBERS]
    return [u for u in every if u.shape[1] > FEW_NUMBERS] + ([jnp.concatenate(small, axis=1)] if small else [])


def largest_magnitude(tree: PyTree) -> jax.Array:
    """The largest magnitude of the tree's floating-point numbers, float32: infinite where one is infinite or NaN, 0
    where there are none."""
    leaves = [leaf[None] for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    # NaN is tested for explicitly: XLA:CPU's maximum ignores it in arrays of 4,096 numbers and more.
    each = [jnp.max(jnp.where(jnp.isnan(u), jnp.inf, jnp.abs(u)), initial=0) for u in few_rows(leaves)]
    return jnp.max(jnp.array(each or [jnp.float32(0)]))


def gram(updates: PyTree) -> jax.Array:
    """`<u_i, u_j>` over all leaves, `[clients, clients]`."""
    exact = jax.lax.Precision.HIGHEST  # the reduced precision of GPUs would show in the cosines
    return sum_over_leaves([jnp.matmul(u, u.T, precision=exact) for u in few_rows(updates)])


def scale_rows(leaf: jax.Array, coefficients: jax.Array) -> jax.Array:
    """`c_i u_i`; a client with coefficient zero is invisible whatever it sent."""
    dtype = jnp.float32 if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf.dtype
    column = per_row(coefficients, leaf.ndim).astype(dtype)
    return jnp.where(column == 0, jnp.zeros_like(leaf), in_dtype(column * leaf.astype(dtype), leaf.dtype))


def sum_over_leaves(tree: PyTree) -> jax.Array:
    """The sum of all leaves."""
    return jax.tree.reduce(jnp.add, tree)


def cosines(updates: Updates, norms: jax.Array, direction: PyTree) -> jax.Array:
    """The cosine of each update with a direction, `[clients]`; zero with a zero vector. Entries may be of any size.

    Args:
      updates: the u_i.
      norms: `updates.norms()`.
      direction: d.
    """
    near_one = of_order_one(direction)
    length = global_norm(near_one)
    unit = jax.tree.map(lambda d: (d.astype(jnp.float32) / jnp.where(length > 0, length, 1)).astype(d.dtype), near_one)
    return jnp.where(norms > 0, updates.inner(unit) / jnp.where(norms > 0, norms, 1), 0)


def cosines_to_sums(updates: Updates) -> Callable[[PyTree], jax.Array]:
    """`coefficients -> cos(u_i, sum_j c_j u_j)`, `[clients]`; zero with a zero vector. A client of coefficient zero is
    invisible to the others. Where `by_pairs` is set, the coefficients must be one array `[clients]`."""
    if updates.by_pairs:
        return partial(cosines_by_pairs, updates.pairs())
    norms = updates.norms()
    return lambda coefficients: cosines(updates, norms, updates.combine(coefficients))


def cosines_by_pairs(pairs: Pairs, coefficients: jax.Array) -> jax.Array:
    """`cos(u_i, sum_j c_j u_j)`, `[clients]`, with the lengths `a_j = c_j |u_j|` and the cosines C of all pairs:
    `sum_j C_ij a_j / sqrt(a' C a)`."""
    lengths = jnp.where(coefficients == 0, 0, coefficients * pairs.norms)
    lengths *= power_of_two(jnp.max(jnp.abs(lengths)))[1]
    inner = jnp.sum(jnp.where(lengths == 0, 0, pairs.cosines * lengths[None]), axis=1)
    square = jnp.sum(jnp.where(lengths == 0, 0, inner * lengths))
    cosine = jnp.where(square > 0, inner / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    return jnp.clip(cosine, -1, 1)


def of_order_one(tree: PyTree) -> PyTree:
    """The tree times one power of two, which rounds nothing, with a largest entry of about 1.

    The squares of entries beyond 1e19 overflow in float32, those of entries below 1e-22 vanish.
    """
    scaled, _ = rows_of_order_one(jax.tree.map(lambda leaf: leaf[None], tree))
    return jax.tree.map(lambda leaf: leaf[0], scaled)


def rows_of_order_one(updates: PyTree) -> tuple[PyTree, jax.Array]:
    """`of_order_one` of each client's update, `[clients, ...]`, and the powers of two that undo the scaling,
    `[clients]`."""
    largest = [jnp.max(jnp.abs(rows(leaf)), axis=1, initial=0) for leaf in jax.tree.leaves(updates)]
    powers, inverses = power_of_two(jnp.max(jnp.stack(largest), axis=0))

    def scaled(u: jax.Array) -> jax.Array:
        return (u.astype(jnp.float32) * per_row(inverses, u.ndim)).astype(u.dtype)

    return jax.tree.map(scaled, updates), powers


EXPONENT = 2**23
"""The unit of the exponent's field in the bits of a float32."""


def power_of_two(magnitude: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest power of two up to a magnitude, and its inverse, both exact in float32: from 2^-126 to 2^126."""
    # All bits but the exponent's are masked, and the exponents of inverses add up to twice the bias.
    bits = jax.lax.bitcast_convert_type(magnitude, jnp.int32) & (255 * EXPONENT)
    bits = jnp.clip(bits, EXPONENT, 253 * EXPONENT)
    as_float = partial(jax.lax.bitcast_convert_type, new_dtype=jnp.float32)
    return as_float(bits), as_float(254 * EXPONENT - bits)


# Jitted even where the caller is not: JAX would compile `cond` anew in each call.
@jax.jit
def row_norms(updates: PyTree) -> jax.Array:
    """`|u_i|` over all leaves, `[clients]`, in float32."""

    def scaled_norms() -> jax.Array:
        scaled, powers = rows_of_order_one(parts)
        return powers * jnp.sqrt(squared_norms(scaled))

    parts = few_rows(updates)
    squares = squared_norms(parts)
    return jax.lax.cond(are_ordinary(squares), lambda: jnp.sqrt(squares), scaled_norms)


@jax.jit
def row_pairs(updates: PyTree) -> Pairs:
    """Norms and cosines of all pairs, over all leaves: `u_i' u_j` of stacked updates."""

    def scaled_pairs() -> Pairs:
        scaled, powers = rows_of_order_one(parts)
        return as_pairs(gram(scaled), powers)

    parts = few_rows(updates)
    products = gram(parts)
    ordinary = are_ordinary(jnp.diagonal(products))
    return jax.lax.cond(ordinary, lambda: as_pairs(products, jnp.ones(len(products))), scaled_pairs)


def as_pairs(products: jax.Array, powers: jax.Array) -> Pairs:
    """`Pairs` from the inner products of updates that were divided by `powers`, `[clients]`."""
    norms = jnp.sqrt(jnp.diagonal(products))
    inverse = jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1), 0)
    return Pairs(powers * norms, products * inverse[:, None] * inverse[None])


def squared_norms(updates: PyTree) -> jax.Array:
    """`|u_i|^2` over all leaves, `[clients]`, in float32: infinite or zero where squares are too large or small."""
    return sum_over_leaves([jnp.sum(u**2, axis=1) for u in few_rows(updates)])


def are_ordinary(squares: jax.Array) -> jax.Array:
    """Whether squared norms need no scaling: none is near overflow, none so small that squares underflow in it.

    Scaling by powers of two would then give the same bits, at the cost of two more passes over the updates."""
    return jnp.all((squares > 1e-24) & (squares < 1e36))


def global_norm(tree: PyTree) -> jax.Array:
    """`|d|` over all leaves, in float32."""
    return jnp.sqrt(sum_over_leaves(jax.tree.map(lambda d: jnp.sum(jnp.square(d.astype(jnp.float32))), tree)))


def inner_products(updates: PyTree, direction: PyTree) -> jax.Array:
    """`<u_i, d>` over all leaves, `[clients]`."""
    return sum_over_leaves(jax.tree.map(lambda u, d: rows(u) @ d.ravel().astype(jnp.float32), updates, direction))


def inner_rows(left: PyTree, right: PyTree) -> jax.Array:
    """`<a_i, b_i>` over all leaves, `[clients]`."""
    return sum_over_leaves(jax.tree.map(lambda a, b: jnp.sum(rows(a) * rows(b), axis=1), left, right))
