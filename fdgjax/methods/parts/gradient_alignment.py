"""FedGaLA's local alignment: the gradient of a layer is dropped unless it agrees with the last global step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, PyTree
from fdgjax.errors import UserError

NOISE = 1e-5
"""A layer's gradient with at most this share of the whole gradient's norm counts as rounding error."""


class Discards(NamedTuple):
    """The numbers of layer gradients dropped and seen in a round (float32), and the round."""

    dropped: jax.Array
    seen: jax.Array
    round: jax.Array


def align_with(
    reference: Callable[[Context], PyTree], threshold: float = 0.0, sign: int = 1
) -> optax.GradientTransformationExtraArgs:
    r"""Sets the gradients of layers that are not aligned with a reference to zero.

    For each leaf, with its gradient g and reference r,

        g <- g if sign * cos(-g, r) >= threshold, else 0.

    r is the last step of the global model, theta_t - theta_(t-1). With sign +1 a gradient is kept if its descent
    direction agrees with r. The official code compares g itself with r (sign -1), and so keeps gradients whose descent
    opposes r. Nothing is dropped where a direction is undefined: in the first round (r = 0), and for a layer whose
    gradient is only rounding error (a bias before BatchNorm). Chain it before the optimiser, whose momentum still moves
    a layer with a dropped gradient.

    Args:
      reference: `context -> r`; training passes `context` to its optimiser as an extra argument.
      threshold: smallest cosine that is kept; 0 in the paper.
      sign: +1, or -1 as in the official code.

    Returns:
      The transformation; its state is `Discards`, for `discard_rate`.

    Raises:
      UserError: sign other than +1 or -1, or a threshold outside [-1, 1].

    References:
      FedGaLA, section 4.1; docs/deviations.md on the sign.
    """
    if sign not in (1, -1) or not -1 <= threshold <= 1:
        raise UserError(
            f"align_with got sign={sign} and threshold={threshold}; expected +1 (descent) or -1 (as published), and a "
            "cosine from -1 to 1"
        )

    def init(params: PyTree) -> Discards:
        del params
        return Discards(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))

    def update(
        updates: PyTree, state: Discards, params: PyTree | None = None, *, context: Context, **others: Any
    ) -> tuple[PyTree, Discards]:
        del params, others
        least = NOISE**2 * optax.tree.norm(updates, squared=True)
        kept = jax.tree.map(lambda g, r: is_aligned(g, r, threshold, sign, least), updates, reference(context))
        aligned = jax.tree.map(lambda g, keep: jnp.where(keep, g, 0), updates, kept)
        stays = jnp.stack([keep.astype(jnp.float32) for keep in jax.tree.leaves(kept)])
        # An optimiser state that is kept between rounds restarts its counts in each round.
        same = (state.round == context.round).astype(jnp.float32)
        dropped, seen = same * state.dropped + jnp.sum(1 - stays), same * state.seen + len(stays)
        return aligned, Discards(dropped, seen, context.round)

    return optax.GradientTransformationExtraArgs(init, update)


def is_aligned(
    gradient: jax.Array, reference: jax.Array, threshold: float, sign: int, least: jax.Array | float = 0.0
) -> jax.Array:
    """Whether `sign * cos(-g, r) >= threshold`, a scalar bool; true where r is zero, or `|g|^2` not above `least`."""
    own, other = jnp.sum(gradient * gradient), jnp.sum(reference * reference)
    directed = (own > least) & (other > 0)
    cosine = -sign * jnp.sum(gradient * reference) * jax.lax.rsqrt(jnp.where(directed, own * other, 1))
    return (cosine >= threshold) | ~directed


def discard_rate(optimizer_state: PyTree) -> jax.Array:
    """The share of layer gradients that were dropped in the last round, 0 to 1, from the state of an optimiser with
    `align_with`."""
    dropped, seen = (optax.tree.get(optimizer_state, name) for name in ("dropped", "seen"))
    return dropped / jnp.maximum(seen, 1)
