"""FedGaLA's local alignment: the gradient of a layer is dropped unless it agrees with the last global step."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Context, PyTree
from fdgjax.utils.errors import UserError

NOISE = 1e-5
"""A layer's gradient with at most this share of the whole gradient's norm counts as rounding error."""


SIGNS: Mapping[str, int] = {"descent": 1, "as_published": -1}
"""Whether descent directions are compared with the last global step, or gradients, as in the official code."""


REFERENCES: Mapping[str, Callable[[PyTree, jax.Array], PyTree]] = {
    "step": lambda moved, key: moved,
    "random": lambda moved, key: optax.tree.random_like(key, moved),
}
"""What gradients are aligned with in the next round: the last step of the global model, or standard normal directions,
new ones in each round and the same for all clients."""


class Discards(NamedTuple):
    """The numbers of layer gradients dropped and seen in a round (float32), and the round."""

    dropped: jax.Array
    seen: jax.Array
    round: jax.Array


def align_with(
    optimizer: optax.GradientTransformation,
    reference: Callable[[Context], PyTree],
    threshold: float = 0.0,
    sign: int = 1,
    first_round: int = 0,
) -> optax.GradientTransformationExtraArgs:
    r"""An optimiser that does not see the gradients of layers that are not aligned with a reference.

    For each leaf, with its gradient g and reference r,

        g <- g if sign * cos(-g, r) >= threshold, else 0.

    r is the last step of the global model, theta_t - theta_(t-1). With sign +1 a gradient is kept if its descent
    direction agrees with r. The official code compares g itself with r (sign -1), and so keeps gradients whose descent
    opposes r. Nothing is dropped if a direction is undefined: in the first round (r = 0), and for a layer whose
    gradient is only rounding error (a bias before BatchNorm).

    Args:
      optimizer: gets the aligned gradients, and the extra argument `kept`, a scalar bool for each leaf (see `DROPPED`).
      reference: `context -> r`; training passes `context` to its optimiser as an extra argument.
      threshold: smallest cosine that is kept; 0 in the paper.
      sign: +1, or -1 as in the official code.
      first_round: nothing is dropped in rounds (from 0) before it.

    Returns:
      The optimiser; its state is `Discards`, for `discard_rate`, and that of `optimizer`.

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
    flexible = optax.with_extra_args_support(optimizer)

    def init(params: PyTree) -> tuple[Discards, PyTree]:
        none = jnp.zeros((), jnp.float32)
        return Discards(none, none, jnp.zeros((), jnp.int32)), optimizer.init(params)

    def update(
        updates: PyTree, states: tuple[Discards, PyTree], params: PyTree | None = None, *, context: Context, **more: Any
    ) -> tuple[PyTree, tuple[Discards, PyTree]]:
        discards, state = states
        least = NOISE**2 * optax.tree.norm(updates, squared=True)
        early = context.round < first_round
        kept = jax.tree.map(lambda g, r: early | is_aligned(g, r, threshold, sign, least), updates, reference(context))
        aligned = jax.tree.map(lambda g, keep: jnp.where(keep, g, 0), updates, kept)
        steps, state = flexible.update(aligned, state, params, context=context, kept=kept, **more)
        return steps, (counted_discards(discards, kept, context.round), state)

    return optax.GradientTransformationExtraArgs(init, update)


def counted_discards(discards: Discards, kept: PyTree, round_: jax.Array) -> Discards:
    """The counts after one more step. They restart in each round, even if the optimiser's state is kept between
    rounds."""
    stays = jnp.stack([keep.astype(jnp.float32) for keep in jax.tree.leaves(kept)])
    same = (discards.round == round_).astype(jnp.float32)
    return Discards(same * discards.dropped + jnp.sum(1 - stays), same * discards.seen + len(stays), round_)


def skipping(optimizer: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """The optimiser, which leaves an array with a dropped gradient alone: no step, no weight decay, its moments and its
    count of steps as they were. This is how PyTorch's optimisers treat a parameter whose `grad` is None.

    Every array has a state of its own, so the optimiser must be one that treats arrays independently.
    """
    flexible = optax.with_extra_args_support(optimizer)

    def update(
        updates: PyTree, states: PyTree, params: PyTree | None = None, *, kept: PyTree, **more: Any
    ) -> tuple[PyTree, PyTree]:
        def one(g: jax.Array, state: PyTree, w: jax.Array, keep: jax.Array) -> tuple[jax.Array, PyTree]:
            stepped = flexible.update(g, state, w, **more)
            return optax.tree.where(keep, stepped, (jnp.zeros_like(g), state))

        both = jax.tree.map(one, updates, states, params, kept)
        steps, after = (jax.tree.map(lambda _, pair, part=part: pair[part], updates, both) for part in (0, 1))
        return steps, after

    return optax.GradientTransformationExtraArgs(lambda params: jax.tree.map(optimizer.init, params), update)


def unchanged(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser, for which a dropped gradient is zero: its momentum and its weight decay still move the array."""
    return optimizer


DROPPED: Mapping[str, Callable[[optax.GradientTransformation], optax.GradientTransformation]] = {
    "skip": skipping,
    "zero": unchanged,
}
"""What the optimiser makes of a dropped gradient."""


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
