"""The min-norm point of the clients' updates: a direction that opposes no client's update (MGDA, FDSE)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.directions import combined, directions_of
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.scopes import SCOPES
from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.contract import PyTree
from fdgjax.utils.registry import lookup


@accepting_lists
def min_norm(
    updates: PyTree, weights: PyTree | None = None, *, scope: str = "leaf", normalize: bool = True
) -> tuple[PyTree, PyTree]:
    r"""The shortest vector in the convex hull of the clients' updates.

        w = argmin |sum_i w_i d_i|^2,  w_i >= 0,  sum_i w_i = 1

    with `d_i = u_i / |u_i|`, and `u = n sum_i w_i d_i` with `n` the (weighted) mean of the `|u_i|`; without
    normalisation `d_i = u_i` and `u = sum_i w_i d_i`. The inner product of `u` with every `u_i` is not negative, so
    to first order a step along it increases no client's loss. `u` is zero if updates cancel in a convex combination.

    A client whose update is zero has no direction; with normalisation it counts in `n` only.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such. They weight the mean of the norms (with `"tree"`, by their
        mean over the prefix tree); the direction depends only on which weights are positive.
      scope: `"leaf"` finds a point for each leaf (FDSE), `"tree"` one for all leaves together.
      normalize: whether directions are compared, or updates as they are.

    Returns:
      `(update, coefficients)`, the coefficients being the factors of the updates.

    Raises:
      UserError: unknown scope.

    References:
      FDSE, equation 8 (section 4.3.1); Desideri, "Multiple-gradient descent algorithm (MGDA)", 2009.
    """

    def rule(updates: Updates, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        found = directions_of(updates, weights)
        if normalize:
            lengths, moving = found.lengths, found.lengths > 0
            mean_length = jnp.sum(found.share * lengths)
            factors = jnp.where(moving, mean_length / jnp.where(moving, lengths, 1), 0)
            coefficients = factors * simplex_weights(found.cosines, moving)
        else:
            coefficients = simplex_weights(found.relative_gram(), found.seen)
        return combined(updates, coefficients, found.shares)

    return lookup("scope", scope, SCOPES)(rule)(explicit(updates), weights)


MANY, EXCHANGES = 64, 12
"""From `MANY` vertices on, several are exchanged at once, in at most `EXCHANGES` steps: 200 vertices need seven."""


class WolfeState(NamedTuple):
    """The state of Wolfe's algorithm.

    weights: of the current point, `[n]`. corral: the vertices that may have a weight, `[n]`. step: steps done. done:
    whether no vertex reduces the norm further.
    """

    weights: jax.Array
    corral: jax.Array
    step: jax.Array
    done: jax.Array


def simplex_weights(gram: jax.Array, allowed: jax.Array) -> jax.Array:
    """The `w` that minimises `w' G w` over the simplex of the allowed vertices; all zero where none is allowed.

    Wolfe's algorithm: find the min-norm point of the affine hull of a few vertices (the corral). While that point lies
    outside their convex hull, move towards it up to the boundary and drop the vertex whose weight becomes zero. Once
    inside, add the vertex with the smallest inner product with the point, until none lowers the norm. The algorithm is
    exact and finite; the number of steps is also bounded, because of rounding.

    It adds vertices one at a time. So for `MANY` vertices or more, a few steps that exchange all wrong ones at once are
    tried first (`exchanged`). They usually end at the same point; where they do not, or near zero, where they are less
    exact, the algorithm begins with one vertex as for fewer.

    Args:
      gram: G, `[n, n]`, inner products of vectors no longer than about 1.
      allowed: `[n]`.

    References:
      Wolfe, "Finding the nearest point in a polytope", 1976; Portugal, Judice and Vicente, "A comparison of block
      pivoting and interior-point algorithms for linear least squares problems with nonnegative variables", 1994.
    """
    n, tolerance = len(gram), 8 * jnp.finfo(gram.dtype).eps

    def vertex(i: jax.Array) -> jax.Array:
        return jnp.arange(n) == i

    def affine(corral: jax.Array) -> jax.Array:
        both = corral[:, None] & corral[None]
        # Adding ones makes the matrix regular for an affinely independent corral; the ridge makes it so in any case.
        matrix = jnp.where(both, gram + 1, 0) + jnp.diag(jnp.where(corral, tolerance, 1))
        solution = jnp.where(corral, jnp.linalg.solve(matrix, corral.astype(gram.dtype)), 0)
        return solution / jnp.sum(solution)

    def step(now: WolfeState) -> WolfeState:
        target = affine(now.corral)
        leaves = now.corral & (target <= 0)
        inside = ~jnp.any(leaves)
        reach = jnp.where(leaves, now.weights / jnp.where(leaves, now.weights - target, 1), 1)
        share = jnp.minimum(jnp.min(reach), 1)
        weights = jnp.where(inside, target, (1 - share) * now.weights + share * target)
        kept = now.corral & ~(leaves & (reach <= share))
        pull = gram @ weights
        best = jnp.argmin(jnp.where(allowed, pull, jnp.inf))
        shortest = (pull[best] >= weights @ pull - tolerance) | now.corral[best]
        corral = jnp.where(inside, now.corral | vertex(best), kept)
        return WolfeState(jnp.where(corral, weights, 0), corral, now.step + 1, inside & shortest)

    def exchanged(now: WolfeState) -> WolfeState:
        target = affine(now.corral)
        pull = gram @ target
        wrong = now.corral & (target <= 0)
        missing = allowed & ~now.corral & (pull < target @ pull - tolerance)
        right = ~jnp.any(wrong | missing) & (target @ pull > 100 * tolerance)
        return WolfeState(target, (now.corral & ~wrong) | missing, now.step + 1, right)

    def until_done(step: Callable[[WolfeState], WolfeState], most: int, begin: WolfeState) -> WolfeState:
        return jax.lax.while_loop(lambda now: ~now.done & (now.step < most), step, begin)

    first = vertex(jnp.argmin(jnp.where(allowed, jnp.diagonal(gram), jnp.inf))) & allowed
    begin = WolfeState(first.astype(gram.dtype), first, jnp.int32(0), ~jnp.any(allowed))
    if n >= MANY:
        found = until_done(exchanged, EXCHANGES, begin._replace(corral=allowed))
        begin = jax.tree.map(partial(jnp.where, found.done), found, begin)
    end = until_done(step, 16 * n, begin)
    return end.weights / jnp.maximum(jnp.sum(end.weights), jnp.finfo(gram.dtype).tiny)
