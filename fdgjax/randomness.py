"""One stream of random numbers per (seed, purpose, round, client), so that nobody's stream depends on the others."""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp


class Purpose(enum.IntEnum):
    """What a stream is for; a new purpose takes a new number, so that old streams never change."""

    INIT = 0
    PARTICIPATION = 1
    TRAINING = 2
    SERVER = 3
    ADAPTATION = 4


def stream(seed: jax.Array, purpose: Purpose, *counters: jax.Array | int) -> jax.Array:
    """`fold_in` of the seed, the purpose and the counters (round, client id), in this order."""
    key = jax.random.fold_in(jax.random.key(seed), purpose)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def draw_each(key: jax.Array, ids: jax.Array, draw: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`draw(key_i)` for each of `ids`, stacked: one id's draw does not depend on which others there are."""
    return jax.vmap(lambda i: draw(jax.random.fold_in(key, i)))(ids)


def shuffle(key: jax.Array, rows: jax.Array, count: jax.Array) -> jax.Array:
    """The first `count` of `rows` `[longest]` in random order, the padding behind them.

    The order depends on `key` and on the valid rows alone: one draw per position, the padding sorted to the end, so
    that a longer padding changes nothing.
    """
    position = jnp.arange(rows.shape[0])
    return rows[jnp.lexsort((draw_each(key, position, jax.random.bits), position >= count))]


def choose(key: jax.Array, ids: jax.Array, many: int) -> jax.Array:
    """Positions of `many` different clients, drawn uniformly by their `ids` `[clients]`, in ascending order."""
    return jnp.sort(jnp.argsort(draw_each(key, ids, jax.random.bits))[:many])
