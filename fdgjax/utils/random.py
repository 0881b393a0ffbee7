"""One random stream per (seed, purpose, round, client), so that no stream depends on another."""

import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp


class Purpose(enum.IntEnum):
    """What a stream is used for; a new purpose gets a new number, so that existing streams never change."""

    INIT = 0
    PARTICIPATION = 1
    TRAINING = 2
    SERVER = 3
    ADAPTATION = 4
    SERVER_TRAINING = 5
    ATTACK = 6
    PRIVACY = 8
    BOOTSTRAP = 9


def stream(seed: jax.Array, purpose: Purpose, *counters: jax.Array | int) -> jax.Array:
    """`fold_in` of the seed, the purpose and the counters (round, client id), in this order.

    In place of the seed a deployment hands a key that only one party knows (`fdgjax.utils.chacha`).
    """
    secret = isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key)
    key = jax.random.fold_in(seed if secret else jax.random.key(seed), purpose)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def any_key() -> jax.ShapeDtypeStruct:
    """The shape of a key, for `jax.eval_shape`; no program is compiled."""
    shape: jax.ShapeDtypeStruct = jax.eval_shape(lambda: jax.random.key(0))
    return shape


def draw_each(key: jax.Array, ids: jax.Array, draw: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`draw(key_i)` for each of `ids`, stacked: one id's draw does not depend on the other ids."""
    return jax.vmap(lambda i: draw(jax.random.fold_in(key, i)))(ids)


def shuffle(key: jax.Array, rows: jax.Array, count: jax.Array) -> jax.Array:
    """The first `count` of `rows` `[longest]` in random order, followed by the padding.

    The order depends only on `key` and the valid rows: there is one draw per position, and the padding is sorted to the
    end, so that more padding changes nothing.
    """
    position = jnp.arange(rows.shape[0])
    return rows[jnp.lexsort((draw_each(key, position, jax.random.bits), position >= count))]


def choose_clients(key: jax.Array, ids: jax.Array, count: int) -> jax.Array:
    """The ascending positions of `count` different clients, chosen uniformly by a draw for each id, `[clients]`."""
    return jnp.sort(jnp.argsort(draw_each(key, ids, jax.random.bits))[:count])


def class_aware(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array, size: int) -> jax.Array:
    """An order of samples that cycles through the classes, see `in_turn`."""
    del domains, size
    return in_turn(key, labels, count)


def domain_aware(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array, size: int) -> jax.Array:
    """An order of samples that cycles through the domains, see `in_turn`."""
    del labels, size
    return in_turn(key, domains, count)


def domain_by_domain(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array, size: int) -> jax.Array:
    """An order of samples in which minibatch by minibatch has samples of one domain, cycling through the domains."""
    del labels
    return in_turn(key, domains, count, size)


def in_turn(key: jax.Array, kinds: jax.Array, count: jax.Array, each: int = 1) -> jax.Array:
    """Positions of samples that cycle through the kinds (classes or domains), `each` samples of one at a time;
    `[longest]`, of which the first `count` are used. With one at a time, every minibatch contains the kinds as evenly
    as possible.

    Within a kind the order is random, and it repeats once all its samples are used: some samples of a large kind are
    left out, those of a small kind recur.

    Args:
      key: random key.
      kinds: int32 `[longest]`, each sample's class or domain; the first `count` are valid, the rest is padding.
      count: number of valid samples.
      each: consecutive samples of a kind.
    """
    index = jnp.arange(len(kinds))
    by_kind = jnp.lexsort((draw_each(key, index, jax.random.bits), kinds, index >= count))
    ordered = kinds[by_kind]
    first = (index < count) & ((index == 0) | (ordered != jnp.roll(ordered, 1)))
    starts = jnp.sort(jnp.where(first, index, count))
    sizes = jnp.append(starts[1:], count) - starts
    turn, which = jnp.divmod(index // each, jnp.maximum(jnp.sum(first), 1))
    place = turn * each + index % each
    return by_kind[starts[which] + place % jnp.maximum(sizes[which], 1)]
