"""Clients' updates that are gradients of a large server model: a rule can use them, but they are not materialised.

For any model, what a rule needs of the gradients `u_i = J_i^T delta_i` is computed by automatic differentiation
(`pulled_back`). Where the model ends in linear layers that hold most of its parameters, as a hypernetwork does, their
gradient is an outer product, and its factors suffice (`through_heads`).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from fdgjax.aggregation.updates import (
    Pairs,
    Updates,
    as_pairs,
    inner_rows,
    row_norms,
    row_pairs,
    rows_of_order_one,
    scale_rows,
    sum_over_leaves,
)
from fdgjax.aggregation.weighting import client_count
from fdgjax.contract import PyTree


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
    """The gradients `u_i = J_i^T delta_i` of `y_i = function(primal, constant, x_i)` with respect to `primal`.

    - `sum_i c_i u_i` is one vector-Jacobian product of all y together, with cotangents `c_i delta_i`;
    - `<u_i, d> = <delta_i, J_i d>` is one Jacobian-vector product;
    - only the norms and the pairs need the gradients themselves, and compute one client's at a time.

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

    def pairs() -> Pairs:
        scaled, powers = rows_of_order_one(cotangents)
        _, push = jax.linearize(outputs, primal)
        products = jax.lax.map(
            lambda row: inner_rows(push(gradient((primal, constant), *row)), scaled), (inputs, scaled)
        )
        return as_pairs(products, powers)

    return Updates(
        clients=client_count(cotangents),
        combine=combine,
        inner=lambda direction: inner_rows(jax.jvp(outputs, (primal,), (direction,))[1], cotangents),
        norms=norms,
        pairs=pairs,
        stacked=lambda: jax.vmap(partial(gradient, (primal, constant)))(inputs, cotangents),
    )


def through_heads(
    heads: Callable[[PyTree, jax.Array], PyTree], primal: PyTree, *, features: jax.Array, cotangents: PyTree
) -> tuple[Updates, jax.Array]:
    r"""The gradients by the last, linear layers of a model, `y_i = heads(primal, f_i)`, and the cotangents of f.

    Every number of y has weights and a bias of its own, for all features: `y = K' f + b`. So a client's gradient is the
    outer product `(f_i, 1) (x) delta_i`, whose factors say

        |u_i| = |(f_i, 1)| |delta_i|,    cos(u_i, u_j) = cos((f_i, 1), (f_j, 1)) cos(delta_i, delta_j)

    The gradients by all before the heads are those of `pulled_back` for the function that makes the features, with the
    cotangents that are returned; `joined` makes one vector of both.

    Args:
      heads: what maps K and b and the features of one client to its y; linear in K and b, none of them shared.
      primal: K and b, in any form.
      features: f, `[clients, k]`.
      cotangents: delta, `[clients, ...]`, like y.

    Returns:
      The updates, and `K delta_i`, `[clients, k]`.
    """
    all_heads = jax.vmap(heads, in_axes=(None, 0))
    _, pull = jax.vjp(all_heads, primal, features)
    ends = jnp.concatenate([features, jnp.ones_like(features[:, :1])], axis=1)
    clients, width = ends.shape

    def pairs() -> Pairs:
        left, right = row_pairs(ends), row_pairs(cotangents)
        return Pairs(left.norms * right.norms, left.cosines * right.cosines)

    def gradient(f: jax.Array, delta: PyTree) -> PyTree:
        return jax.vjp(lambda k: heads(k, f), primal)[1](delta)[0]

    updates = Updates(
        clients=clients,
        combine=lambda c: pull(jax.tree.map(lambda delta: scale_rows(delta, c), cotangents))[0],
        inner=lambda direction: inner_rows(all_heads(direction, features), cotangents),
        norms=lambda: row_norms(ends) * row_norms(cotangents),
        pairs=pairs,
        stacked=lambda: jax.vmap(gradient)(features, cotangents),
        # Multiplications for one number of y: clients^2 for the pairs; clients * width for a combined update, and for
        # its inner products.
        by_pairs=clients <= 2 * width,
    )
    return updates, pull(cotangents)[1]
