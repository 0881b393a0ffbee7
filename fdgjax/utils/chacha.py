"""ChaCha20 as a generator of JAX's random numbers, for noise that nobody else may know.

JAX's own generator, Threefry, has keys of 64 bits, and its streams here begin with a seed of 32: whoever sees a number
from it can try them all. ChaCha20 (RFC 8439, section 2.3) has keys of 256 bits and is a cipher's key stream. With key
words k_0 ... k_7, block number b and nonce n, 16 words are

    s = ("expand 32-byte k", k, b, n);    block(k, b, n) = s + rounds(s)        modulo 2^32

    random bits    block(k, 0, BITS), block(k, 1, BITS), ...    (8 or 16 bits: the low ones of a word each)
    fold_in(k, b)  the first 8 words of block(k, b, FOLD)
    split(k)_b     the first 8 words of block(k, b, SPLIT)

All functions of `jax.random` work on such keys.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

WORDS = 8
"""Words of 32 bits in a key."""
CONSTANTS = tuple(int(word) for word in np.frombuffer(b"expand 32-byte k", "<u4"))
BITS, FOLD, SPLIT = (1, 0, 0), (2, 0, 0), (3, 0, 0)
"""Nonces: what a block is used for."""
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
DOUBLE_ROUNDS = 10


def rotate(word: jax.Array, bits: int) -> jax.Array:
    """The word's bits moved to the left in a circle."""
    return (word << bits) | (word >> (32 - bits))


def quarter_round(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, ...]:
    """RFC 8439, section 2.1."""
    a = a + b
    d = rotate(d ^ a, 16)
    c = c + d
    b = rotate(b ^ c, 12)
    a = a + b
    d = rotate(d ^ a, 8)
    c = c + d
    b = rotate(b ^ c, 7)
    return a, b, c, d


def double_round(_: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """A round over the columns and one over the diagonals (section 2.3)."""
    words = list(state)
    for places in (*COLUMNS, *DIAGONALS):
        for place, word in zip(places, quarter_round(*(words[i] for i in places)), strict=True):
            words[place] = word
    return tuple(words)


def blocks(key: jax.Array, numbers: jax.Array, nonce: tuple[int, int, int]) -> jax.Array:
    """The blocks of these numbers, uint32 `[blocks, 16]`; `key` uint32 `[8]`, `numbers` uint32 `[blocks]`."""
    one = [*CONSTANTS, *key, numbers, *nonce]
    begin = tuple(jnp.broadcast_to(jnp.asarray(word, jnp.uint32), numbers.shape) for word in one)
    end = jax.lax.fori_loop(0, DOUBLE_ROUNDS, double_round, begin)
    return jnp.stack([first + last for first, last in zip(begin, end, strict=True)], axis=-1)


def random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    """Random numbers of 8, 16 or 32 bits; raises a `NotImplementedError` for others."""
    kinds = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}
    if width not in kinds:
        raise NotImplementedError(f"random numbers of {width} bits by ChaCha20; expected one of {sorted(kinds)}")
    size = math.prod(shape)
    words = blocks(key, jnp.arange(-(-size // 16), dtype=jnp.uint32), BITS)
    return words.reshape(-1)[:size].reshape(shape).astype(kinds[width])


def fold_in(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """The key that belongs to a number."""
    return blocks(key, jnp.asarray(number).astype(jnp.uint32)[None], FOLD)[0, :WORDS]


def split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """New keys, `[*shape, 8]`."""
    made = blocks(key, jnp.arange(math.prod(shape), dtype=jnp.uint32), SPLIT)
    return made[:, :WORDS].reshape(*shape, WORDS)


def seeded(seed: jax.Array) -> jax.Array:
    """The key whose first word is the seed: for tests, as it has 32 bits at most."""
    return jnp.zeros(WORDS, jnp.uint32).at[0].set(jnp.asarray(seed).astype(jnp.uint32))


CHACHA20 = define_prng_impl(
    key_shape=(WORDS,),
    seed=seeded,
    split=split,
    random_bits=random_bits,
    fold_in=fold_in,
    name="chacha20",
    tag="cha",
)


def secret_key(content: bytes) -> jax.Array:
    """The key of 32 bytes."""
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(content, "<u4")), impl=CHACHA20)
