"""One stream of random numbers per (seed, purpose, round, client), so that no stream depends on another."""

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
    SERVER_TRAINING = 5
    ATTACK = 6
    PRIVACY = 8


def stream(seed: jax.Array, purpose: Purpose, *counters: jax.Array | int) -> jax.Array:
    """`fold_in` of the seed, the purpose and the counters (round, client id), in this order."""
    key = jax.random.fold_in(jax.random.key(seed), purpose)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def any_key() -> jax.ShapeDtypeStruct:
    """A key for `jax.eval_shape`: its shape alone, for which no program is compiled."""
    shape: jax.ShapeDtypeStruct = jax.eval_shape(lambda: jax.random.key(0))
    return shape


def draw_each(key: jax.Array, ids: jax.Array, draw: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`draw(key_i)` for each of `ids`, stacked: one id's draw does not depend on the other ids."""
    return jax.vmap(lambda i: draw(jax.random.fold_in(key, i)))(ids)


def shuffle(key: jax.Array, rows: jax.Array, count: jax.Array) -> jax.Array:
    """The first `count` of `rows` `[longest]` in random order, the padding behind them.

    The order depends on `key` and on the valid rows alone: one draw per position, the padding sorted to the end, so
    that a longer padding changes nothing.
    """
    position = jnp.arange(rows.shape[0])
    return rows[jnp.lexsort((draw_each(key, position, jax.random.bits), position >= count))]


def choose_clients(key: jax.Array, ids: jax.Array, count: int) -> jax.Array:
    """Positions of `count` different clients, drawn uniformly by their `ids` `[clients]`, in ascending order."""
    return jnp.sort(jnp.argsort(draw_each(key, ids, jax.random.bits))[:count])


def class_aware(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array) -> jax.Array:
    """An order of samples that takes the classes in turn, see `in_turn`."""
    del domains
    return in_turn(key, labels, count)


def domain_aware(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array) -> jax.Array:
    """An order of samples that takes the domains in turn, see `in_turn`."""
    del labels
    return in_turn(key, domains, count)


def in_turn(key: jax.Array, kinds: jax.Array, count: jax.Array) -> jax.Array:
    """Positions that take the kinds in turn, one sample of each, so that every minibatch holds them as evenly as
    possible; `[longest]`, of which the first `count` are used.

    Within a kind the order is random and repeats once every sample is used: some samples of a large kind are left out,
    those of a small one recur.

    Args:
      kinds: int32 `[longest]`, of which the first `count` are real.
    """
    index = jnp.arange(len(kinds))
    by_kind = jnp.lexsort((draw_each(key, index, jax.random.bits), kinds, index >= count))
    ordered = kinds[by_kind]
    first = (index < count) & ((index == 0) | (ordered != jnp.roll(ordered, 1)))
    starts = jnp.sort(jnp.where(first, index, count))
    sizes = jnp.append(starts[1:], count) - starts
    turn, which = jnp.divmod(index, jnp.maximum(jnp.sum(first), 1))
    return by_kind[starts[which] + turn % jnp.maximum(sizes[which], 1)]
