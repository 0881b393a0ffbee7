"""On-server gradient matching (FedOMG): of the steps near the mean, the one whose smallest inner product with a
client's update is largest."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.directions import combined, directions_of
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.min_norm import simplex_weights
from fdgjax.aggregation.scopes import SCOPES
from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


class Solver(NamedTuple):
    """How the step along the best combination is found.

    gamma: `(gram [n, n], shares [n], kappa, allowed [n]) -> gamma [n]` on the simplex of the allowed clients.
    ratio: `(|g|^2, |sum_i gamma_i u_i|^2) -> |g| / |sum_i gamma_i u_i|`, bounded where the latter is near zero; lengths
      are in units of the mean length of an update.
    """

    gamma: Callable[[jax.Array, jax.Array, jax.Array | float, jax.Array], jax.Array]
    ratio: Callable[[jax.Array, jax.Array], jax.Array]


FACTORS: Mapping[str, Callable[[float], float]] = {
    "paper": lambda kappa: 1.0,
    "official": lambda kappa: 1 + kappa**2,
    "agreement": lambda kappa: 1 + kappa,
}
"""What the step is divided by: nothing (the paper), `1 + kappa^2` (the official code, after CAGrad), or `1 + kappa`,
with which clients that agree give their common update."""

HALVINGS = 25
"""Bisections of the interval in which `exact` looks for the length of the best combination: float32 has 24 bits."""

SMOOTHING = 1e-4
"""The official code's constant: added to squared lengths under a root, and to the length that it divides by; lengths
are in units of the mean length of an update."""


@accepting_lists
def gradient_matching(
    updates: PyTree,
    weights: PyTree | None = None,
    *,
    kappa: float = 0.5,
    scale: str = "paper",
    solver: str = "exact",
    scope: str = "tree",
) -> tuple[PyTree, PyTree]:
    r"""The mean, and a step of `kappa` times its length along a convex combination of the updates.

    With `p_i = w_i / sum_j w_j`, `g = sum_i p_i u_i` and Gamma over the simplex of the clients with a weight,

        gamma = argmin <sum_i gamma_i u_i, g> + kappa |g| |sum_i gamma_i u_i|
        u     = g + kappa |g| / |sum_i gamma_i u_i| * sum_i gamma_i u_i

    By duality (as in CAGrad), u is the vector within `kappa |g|` of the mean whose smallest inner product with a
    client's update is the largest: with kappa = 0 the mean, with a larger kappa nearer to what all clients agree on.
    Where the best combination is shorter than a hundredth of the updates' mean length, as with a client that is almost
    idle, the step along it is shorter in proportion, and u is the mean where it is zero: |sum_i gamma_i u_i| is divided
    by no less than in the official code.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such (then its mean counts, as in `min_norm`); clients with weight
        zero are invisible.
      kappa: radius of the search, in lengths of the mean, from 0.
      scale: the entry of `FACTORS` that u is divided by.
      solver: the entry of `SOLVERS` that finds gamma.
      scope: `"tree"` finds one gamma for all leaves (the paper), `"leaf"` one for each leaf.

    Returns:
      `(update, coefficients)`, the coefficients being the factors of the updates; they need not sum to one.

    Raises:
      UserError: unknown scale, solver or scope, or a negative kappa.

    References:
      Nguyen et al., "Federated domain generalization with data-free on-server matching gradient", ICLR 2025, and its
      official code; Liu et al., "Conflict-averse gradient descent for multi-task learning", 2021.
    """
    if not kappa >= 0:
        raise UserError(f"gradient_matching got kappa={kappa}; expected a radius from 0 (the mean), such as 0.5")
    factor, found_by = lookup("scale", scale, FACTORS)(kappa), lookup("solver", solver, SOLVERS)

    def rule(updates: Updates, weights: PyTree | None = None) -> tuple[PyTree, PyTree]:
        found = directions_of(updates, weights)
        share, gram = found.share, found.relative_gram()
        gamma, unit = found_by.gamma(gram, share, kappa, found.seen), mean_length(gram, found.seen) ** 2
        along = kappa * found_by.ratio(quadratic(gram, share) / unit, quadratic(gram, gamma) / unit)
        return combined(updates, (share + along * gamma) / factor, found.shares)

    return lookup("scope", scope, SCOPES)(rule)(explicit(updates), weights)


def quadratic(gram: jax.Array, weights: jax.Array) -> jax.Array:
    """`|sum_i w_i u_i|^2`, which rounding cannot make negative."""
    return jnp.maximum(weights @ gram @ weights, 0)


def mean_length(gram: jax.Array, allowed: jax.Array) -> jax.Array:
    """The mean length of the allowed clients' updates; 1 where all are zero."""
    lengths = jnp.sqrt(jnp.diagonal(gram))
    mean = jnp.sum(jnp.where(allowed, lengths, 0)) / jnp.maximum(jnp.sum(allowed.astype(jnp.float32)), 1)
    return jnp.where(mean > 0, mean, 1)


def exact(gram: jax.Array, shares: jax.Array, kappa: jax.Array | float, allowed: jax.Array) -> jax.Array:
    """The minimiser, by min-norm points.

    As `a l = min_t a (l^2 / t + t) / 2` over t > 0, with `a = kappa |g|` and `l = |sum_i gamma_i u_i|`, the gamma for a
    given t is the min-norm point of the shifted updates `u_i + (t / a) g`. The minimum over t is where `l = t`; since
    the whole is convex in t, `l > t` means that it lies above t.
    """
    pull, squared = gram @ shares, quadratic(gram, shares)
    radius = kappa * jnp.sqrt(squared)
    inverse = jnp.where(radius > 0, 1 / jnp.where(radius > 0, radius, 1), 0)

    def best(t: jax.Array) -> jax.Array:
        shift = t * inverse
        shifted = gram + shift * (pull[:, None] + pull[None]) + shift**2 * squared
        largest = jnp.max(jnp.where(allowed, jnp.diagonal(shifted), 0))
        return simplex_weights(shifted / jnp.where(largest > 0, largest, 1), allowed)

    def halve(_: int, interval: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = interval
        middle = (low + high) / 2
        above = quadratic(gram, best(middle)) > middle**2
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.float32(0), jnp.float32(1)))
    return best((low + high) / 2)


def exact_ratio(squared: jax.Array, along: jax.Array) -> jax.Array:
    """The ratio itself, but for combinations shorter than what the official code divides by at the least."""
    return jnp.sqrt(squared) / jnp.maximum(jnp.sqrt(along), SMOOTHING**0.5 + SMOOTHING)


STEPS, RATE, MOMENTUM = 20, 25.0, 0.5
"""Constants of the official code's descent."""


def descent(gram: jax.Array, shares: jax.Array, kappa: jax.Array | float, allowed: jax.Array) -> jax.Array:
    """The official code's search: gradient descent with momentum on the logits of gamma, from equal ones; of all
    iterates the one with the smallest objective. Lengths are in units of the mean length of an update."""
    gram = gram / mean_length(gram, allowed) ** 2
    pull = gram @ shares
    radius = kappa * jnp.sqrt(quadratic(gram, shares) + SMOOTHING)

    def simplex(logits: jax.Array) -> jax.Array:
        return jax.nn.softmax(logits, where=allowed)

    def objective(logits: jax.Array) -> jax.Array:
        gamma = simplex(logits)
        return gamma @ pull + radius * jnp.sqrt(gamma @ gram @ gamma + SMOOTHING)

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
        logits, velocity = carry
        value, gradient = jax.value_and_grad(objective)(logits)
        velocity = MOMENTUM * velocity + gradient
        return (logits - RATE * velocity, velocity), (value, logits)

    start = jnp.zeros_like(shares)
    _, (values, iterates) = jax.lax.scan(step, (start, start), length=STEPS + 1)
    return jnp.where(allowed, simplex(iterates[jnp.argmin(values)]), 0)


def smoothed_ratio(squared: jax.Array, along: jax.Array) -> jax.Array:
    """The official code's ratio of smoothed lengths. Here both have the last term, so that clients that agree give
    their common update; in the official code only the divisor has it."""
    length, divisor = (jnp.sqrt(one + SMOOTHING) + SMOOTHING for one in (squared, along))
    return length / divisor


SOLVERS: Mapping[str, Solver] = {"exact": Solver(exact, exact_ratio), "descent": Solver(descent, smoothed_ratio)}
"""The step along the best combination: exact up to rounding, or as in the official code."""
