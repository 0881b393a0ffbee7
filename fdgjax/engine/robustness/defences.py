"""Defences, applied to the clients' messages before a method's rule: clipped updates, and a robust centre of them."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.distances import lower_median
from fdgjax.aggregation.mixing import nearest_neighbour_mixing
from fdgjax.aggregation.robust import ROBUST, Robust, RobustSettings
from fdgjax.aggregation.updates import row_norms, scale_rows
from fdgjax.aggregation.weighting import per_row
from fdgjax.contract import Method, PyTree
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import Registry

Bound = Callable[[jax.Array, jax.Array], jax.Array]
"""The largest norm that an update may have: `(norms [clients], who counts [clients]) -> bound`."""


class Defence(NamedTuple):
    """A defence: `bound`, of the updates' norms, None for none; the robust `rule`, None for the method's own alone; its
    `settings`; and `mixing`, whether each update is mixed with its nearest neighbours first."""

    bound: Bound | None = None
    rule: Robust | None = None
    settings: RobustSettings = RobustSettings()
    mixing: bool = False


class Verdict(NamedTuple):
    """What a defence did with each participant's update, `[participants]`.

    norm: `|u_i|` as it was sent. factor: what clipping multiplied it by, 0 for a client that is left out. share: its
    share in the robust centre, None without a rule. distance: of the clipped update from the centre, None likewise.
    """

    norm: jax.Array
    factor: jax.Array
    share: jax.Array | None = None
    distance: jax.Array | None = None


def constant(value: float, norms: jax.Array, counts: jax.Array) -> jax.Array:
    """The same bound whatever the clients send."""
    del norms, counts
    return jnp.float32(value)


def usual(norms: jax.Array, counts: jax.Array) -> jax.Array:
    """The median of those that are not zero: where half of the clients send no change, that of all is 0, and would
    leave nothing of the others' updates. Infinite where no client sends a change."""
    return lower_median(norms, counts & (norms > 0))


CLIPS: Mapping[str, Bound | None] = {"none": None, "median": usual}
"""The words that `config.defence.clip` accepts besides a number."""
RULES: Registry[Robust | None] = Registry("robust rule", {"none": None, **ROBUST})
"""The values of `config.defence.rule`."""


def bound_of(clip: str) -> Bound | None:
    """The bound that a word or a number stands for, None for none.

    Raises:
      UserError: another word, or a number that is not positive.
    """
    if clip in CLIPS:
        return CLIPS[clip]
    try:
        value = float(clip)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(
            f"config.defence.clip got '{clip}'; expected none, median (of the updates' norms), or a norm above 0"
        )
    return partial(constant, value)


def check_defence(defence: Defence, method: Method, clients: int, *, updates: bool) -> None:
    """Raises a `UserError` for a defence without effect, for a rule that cannot replace the method's own, or for one
    that needs more clients.

    Args:
      defence: what is checked.
      method: whose messages it sees.
      clients: number of participants of a round.
      updates: whether the method's clients send updates.
    """
    if not updates:
        raise UserError(
            "config.defence got a defence from forged updates, but the method's clients send no update; expected "
            "config.defence.rule=none and config.defence.clip=none"
        )
    if defence.rule is None:
        return
    if not method.averaged:
        raise UserError(
            "config.defence.rule got a robust rule, but the method does not average its clients' updates; expected "
            "config.defence.rule=none; config.defence.clip=median works for every method that sends updates"
        )
    hostile = defence.settings.hostile
    least = defence.rule.least(hostile)
    if clients < least:
        raise UserError(
            f"config.defence.rule got {clients} clients a round; expected at least {least} to withstand "
            f"config.defence.hostile={hostile}; choose another rule, or a smaller number"
        )


def robust_centre(defence: Defence, rule: Robust, updates: PyTree, weights: jax.Array) -> tuple[PyTree, jax.Array]:
    """The rule's centre, and the clients' shares in it, `[participants]`."""
    if not defence.mixing:
        return rule.apply(updates, weights, defence.settings)
    mixed, parts = nearest_neighbour_mixing(updates, weights, hostile=defence.settings.hostile)
    centre, shares = rule.apply(mixed, weights, defence.settings)
    return centre, shares @ parts


def defend(method: Method, defence: Defence, messages: PyTree, weights: jax.Array) -> tuple[PyTree, Verdict]:
    """The messages with defended updates, and what was done.

    A robust rule replaces every client's update by its centre, so that the method's own aggregate is this centre,
    whatever its weights; the other parts of the messages are left to the method.

    Args:
      method: says where in a message its update lies.
      defence: what is done.
      messages: `[participants, ...]`, finite where the weight is not zero.
      weights: `[participants]`; a client of weight zero is left out.
    """
    counts, updates = weights > 0, method.updates.get(messages)
    factor = counts.astype(jnp.float32)
    if not jax.tree.leaves(updates):
        return messages, Verdict(jnp.zeros_like(factor), factor)
    norms = jnp.where(counts, row_norms(updates), 0)
    if defence.bound:
        bound = defence.bound(norms, counts)
        factor = jnp.where(norms > bound, factor * bound / jnp.where(norms > bound, norms, 1), factor)
        updates = jax.tree.map(lambda u: scale_rows(u, factor), updates)
    share = distance = None
    if defence.rule:
        centre, share = robust_centre(defence, defence.rule, updates, weights)
        distance = jnp.where(counts, row_norms(jax.tree.map(lambda u, c: u - c[None], updates, centre)), 0)

        def by_centre(u: jax.Array, c: jax.Array) -> jax.Array:
            return jnp.where(per_row(counts, u.ndim), jnp.broadcast_to(c[None], u.shape), jnp.zeros_like(u))

        updates = jax.tree.map(by_centre, updates, centre)
    return method.updates.set(messages, updates), Verdict(norms, factor, share, distance)
