"""Clients' updates as a rule sees them, whether or not they are materialised.

A rule needs only sums `sum_i c_i u_i`, inner products `<u_i, d>` and norms `|u_i|`. A stack of arrays gives these
directly (`explicit`). Gradients pulled back through a large server model, `u_i = J_i^T delta_i`, give them by automatic
differentiation (`pulled_back`), without memory for one server gradient per client.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import client_count, per_row, weighted_sum
from fdgjax.contract import PyTree


class Updates(NamedTuple):
    """The operations on the clients' updates that a rule may use.

    clients: their number.
    combine: `(coefficients [clients] or prefix tree) -> sum_i c_i u_i`.
    inner: `(direction) -> <u_i, d>`, `[clients]`.
    norms: `() -> |u_i|`, `[clients]`.
    stacked: `() -> pytree of [clients, ...]`, materialised.
    """

    clients: int
    combine: Callable[[PyTree], PyTree]
    inner: Callable[[PyTree], jax.Array]
    norms: Callable[[], jax.Array]
    stacked: Callable[[], PyTree]


def explicit(updates: PyTree) -> Updates:
    """Updates materialised as a pytree of `[clients, ...]`."""
    return Updates(
        clients=client_count(updates),
        combine=partial(weighted_sum, updates),
        inner=partial(inner_products, updates),
        norms=partial(row_norms, updates),
        stacked=lambda: updates,
    )


def one_by_one(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function of `(shared, *one client's rows)` as one of stacked rows, one client after another."""
    return lambda shared, *rows: jax.lax.map(lambda row: function(shared, *row), rows)


def pulled_back(
    function: Callable[[PyTree, PyTree, PyTree], PyTree],
    primal: PyTree,
    constant: PyTree,
    *,
    inputs: PyTree,
    cotangents: PyTree,
    each: Callable[[Callable[..., PyTree]], Callable[..., PyTree]] = one_by_one,
) -> Updates:
    """The gradients `u_i = J_i^T delta_i` of `y_i = function(primal, constant, x_i)` by `primal`.

    - `sum_i c_i u_i` is one vector-Jacobian product of all y together, with cotangents `c_i delta_i`;
    - `<u_i, d> = <delta_i, J_i d>` is one Jacobian-vector product;
    - only the norms pass over the clients, one gradient at a time.

    Args:
      function: what maps the primal, the constant and one client's input to that client's output. It closes over no
        array.
      primal: the learned parameters, e.g. the hypernetwork's.
      constant: further values that all clients share.
      inputs, cotangents: x and delta, `[clients, ...]`.
      each: a function of `(shared, *one client's rows)` to one of stacked rows, as `fdgjax.engine.over_clients` is.
    """

    def outputs(primal: PyTree) -> PyTree:
        return jax.vmap(partial(function, primal, constant))(inputs)

    _, pull = jax.vjp(outputs, primal)

    def gradient(shared: tuple[PyTree, PyTree], x: PyTree, cotangent: PyTree) -> PyTree:
        primal, constant = shared
        return jax.vjp(lambda p: function(p, constant, x), primal)[1](cotangent)[0]

    def combine(coefficients: PyTree) -> PyTree:
        scaled = jax.tree.map(lambda delta: scale_rows(delta, coefficients), cotangents)
        return pull(scaled)[0]

    def squared_norm(shared: tuple[PyTree, PyTree], x: PyTree, cotangent: PyTree) -> jax.Array:
        return sum_over_leaves(jax.tree.map(lambda g: jnp.sum(jnp.square(g)), gradient(shared, x, cotangent)))

    def norms() -> jax.Array:
        scaled, powers = rows_of_order_one(cotangents)
        return powers * jnp.sqrt(each(squared_norm)((primal, constant), inputs, scaled))

    return Updates(
        clients=client_count(cotangents),
        combine=combine,
        inner=lambda direction: inner_rows(jax.jvp(outputs, (primal,), (direction,))[1], cotangents),
        norms=norms,
        stacked=lambda: jax.vmap(partial(gradient, (primal, constant)))(inputs, cotangents),
    )


def joined(parts: Any) -> Updates:
    """Several parts of the same clients' updates as one vector; `parts` is a NamedTuple of `Updates`, and a combined
    update is a NamedTuple of that kind."""
    kind = type(parts)
    return Updates(
        clients=parts[0].clients,
        combine=lambda coefficients: kind(*(part.combine(coefficients) for part in parts)),
        inner=lambda direction: sum_over_leaves([p.inner(d) for p, d in zip(parts, direction, strict=True)]),
        norms=lambda: row_norms([part.norms() for part in parts]),
        stacked=lambda: kind(*(part.stacked() for part in parts)),
    )


def rows(leaf: jax.Array) -> jax.Array:
    """One row per client, `[clients, numbers]`, in float32."""
    return leaf.reshape(len(leaf), -1).astype(jnp.float32)


def gram(updates: PyTree) -> jax.Array:
    """`<u_i, u_j>` over all leaves, `[clients, clients]`."""
    return sum_over_leaves(jax.tree.map(lambda u: rows(u) @ rows(u).T, updates))


def scale_rows(leaf: jax.Array, coefficients: jax.Array) -> jax.Array:
    """`c_i u_i`; a client with coefficient zero is invisible whatever it sent."""
    column = per_row(coefficients, leaf.ndim).astype(leaf.dtype)
    return jnp.where(column == 0, jnp.zeros_like(leaf), column * leaf)


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


def of_order_one(tree: PyTree) -> PyTree:
    """The tree times one power of two, which rounds nothing, with a largest entry of about 1.

    The squares of entries beyond 1e19 overflow in float32, those of entries below 1e-22 vanish.
    """
    scaled, _ = rows_of_order_one(jax.tree.map(lambda leaf: leaf[None], tree))
    return jax.tree.map(lambda leaf: leaf[0], scaled)


def rows_of_order_one(updates: PyTree) -> tuple[PyTree, jax.Array]:
    """`of_order_one` of each client's update, `[clients, ...]`, and the powers of two it is to be multiplied by again,
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


def row_norms(updates: PyTree) -> jax.Array:
    """`|u_i|` over all leaves, `[clients]`, in float32."""
    scaled, powers = rows_of_order_one(updates)
    return powers * jnp.sqrt(sum_over_leaves(jax.tree.map(lambda u: jnp.sum(rows(u) ** 2, axis=1), scaled)))


def global_norm(tree: PyTree) -> jax.Array:
    """`|d|` over all leaves, in float32."""
    return jnp.sqrt(sum_over_leaves(jax.tree.map(lambda d: jnp.sum(jnp.square(d.astype(jnp.float32))), tree)))


def inner_products(updates: PyTree, direction: PyTree) -> jax.Array:
    """`<u_i, d>` over all leaves, `[clients]`."""
    return sum_over_leaves(jax.tree.map(lambda u, d: rows(u) @ d.ravel().astype(jnp.float32), updates, direction))


def inner_rows(left: PyTree, right: PyTree) -> jax.Array:
    """`<a_i, b_i>` over all leaves, `[clients]`."""
    return sum_over_leaves(jax.tree.map(lambda a, b: jnp.sum(rows(a) * rows(b), axis=1), left, right))
