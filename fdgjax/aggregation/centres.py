"""Robust centres found by iteration: the geometric median, and centered clipping."""

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import (
    amid_others,
    counting_clients,
    from_point,
    inverse_shares,
    lower_median,
    pairs_of,
)
from fdgjax.aggregation.lists import accepting_lists
from fdgjax.aggregation.updates import Updates, explicit
from fdgjax.contract import PyTree
from fdgjax.utils.errors import UserError


@accepting_lists
def geometric_median(updates: PyTree, weights: PyTree | None = None, *, steps: int = 8) -> tuple[PyTree, PyTree]:
    r"""The point with the least sum of distances from the updates, by the smoothed Weiszfeld algorithm.

        c_i = 1 / max(|u_i - u|, nu),    u <- sum_i c_i u_i / sum_j c_j                    `steps` times

    Clients count equally, and nu is 1e-6 of the median distance. The first point weights every update by its inverse
    median distance from the others; the paper starts from the mean, from which a few steps do not suffice where a
    client sends a million times its update.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; a client counts where its weight is positive.
      steps: at least 1.

    Returns:
      `(update, shares)`; the shares `[clients]` sum to one.

    Raises:
      UserError: `steps` below 1.

    References:
      Pillutla et al., "Robust aggregation for federated learning", IEEE Transactions on Signal Processing 2022,
      Algorithm 2 (RFA).
    """
    return towards_median(explicit(updates), weights, steps=steps)


def towards_median(updates: Updates, weights: PyTree | None = None, *, steps: int = 8) -> tuple[PyTree, PyTree]:
    """`geometric_median` of `Updates`, which need not be materialised."""
    check_steps("geometric_median", steps)
    counts = counting_clients(weights, updates.clients)
    pairs = pairs_of(updates, counts)

    def step(shares: jax.Array, _: None) -> tuple[jax.Array, None]:
        return inverse_shares(from_point(pairs, shares), counts), None

    shares, _ = jax.lax.scan(step, amid_others(pairs, counts), length=steps)
    return updates.combine(shares), shares


@accepting_lists
def centered_clipping(
    updates: PyTree, weights: PyTree | None = None, *, radius: float = 0.0, steps: int = 3
) -> tuple[PyTree, PyTree]:
    r"""The mean of the updates, each pulled to within a radius of the centre.

        v <- v + 1/m sum_i (u_i - v) min(1, tau / |u_i - v|)                                `steps` times

    over the m clients that count. The paper starts from the last round's aggregate; here nothing is kept between
    rounds, and the first centre is the first point of `geometric_median`.

    Args:
      updates: pytree of `[clients, ...]`.
      weights: None, `[clients]` or a prefix tree of such; a client counts where its weight is positive.
      radius: tau; 0 for the median of the distances, which leaves half of the updates as they are.
      steps: at least 1.

    Returns:
      `(update, shares)`; the shares `[clients]` sum to one.

    Raises:
      UserError: `steps` below 1, or a negative radius.

    References:
      Karimireddy et al., "Learning from history for Byzantine robust optimization", ICML 2021, equation 7.
    """
    return clipped_to_centre(explicit(updates), weights, radius=radius, steps=steps)


def clipped_to_centre(
    updates: Updates, weights: PyTree | None = None, *, radius: float = 0.0, steps: int = 3
) -> tuple[PyTree, PyTree]:
    """`centered_clipping` of `Updates`, which need not be materialised."""
    check_steps("centered_clipping", steps)
    if not radius >= 0:
        raise UserError(f"centered_clipping got radius={radius}; expected 0 for the median distance, or more")
    counts = counting_clients(weights, updates.clients)
    pairs, many = pairs_of(updates, counts), jnp.maximum(jnp.sum(counts, dtype=jnp.float32), 1)

    def step(shares: jax.Array, _: None) -> tuple[jax.Array, None]:
        far = from_point(pairs, shares)
        tau = radius if radius else lower_median(far, counts)
        pulled = jnp.where(counts, jnp.where(far > tau, tau / jnp.where(far > tau, far, 1), 1), 0) / many
        return shares * (1 - jnp.sum(pulled)) + pulled, None

    shares, _ = jax.lax.scan(step, amid_others(pairs, counts), length=steps)
    shares = jnp.where(counts, shares, 0)
    return updates.combine(shares), shares


def check_steps(name: str, steps: int) -> None:
    """Raises a `UserError` for less than one step."""
    if steps < 1:
        raise UserError(f"{name} got steps={steps}; expected at least 1")
