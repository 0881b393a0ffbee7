"""ChaCha20's blocks are the standard's and another library's, and JAX's functions draw from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.utils.chacha import BITS, blocks, random_bits, secret_key
from fdgjax.utils.random import Purpose, stream

KEY = bytes(range(32))


def theirs(key: bytes, number: int, nonce: bytes, count: int) -> np.ndarray:
    """The key stream from block `number` on, by the library cryptography, `[count, 16]`."""
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    cipher = ciphers.Cipher(
        ciphers.algorithms.ChaCha20(key, number.to_bytes(4, "little") + nonce), mode=None
    ).encryptor()
    return np.frombuffer(cipher.update(bytes(64 * count)), "<u4").reshape(count, 16)


def test_a_block_is_the_standards() -> None:
    # RFC 8439, section 2.3.2.
    nonce = (0x09000000, 0x4A000000, 0)
    made = blocks(jnp.asarray(np.frombuffer(KEY, "<u4")), jnp.ones(1, jnp.uint32), nonce)
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert np.asarray(made, "<u4").tobytes().hex() == expected


bits = jax.jit(lambda key: jax.random.bits(key, (5, 11)))


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_random_bits_are_the_key_stream(key: bytes) -> None:
    nonce = np.asarray(BITS, "<u4").tobytes()
    np.testing.assert_array_equal(bits(secret_key(key)).ravel(), theirs(key, 0, nonce, 4).ravel()[:55])


@pytest.mark.slow
def test_no_two_keys_that_follow_from_one_are_alike() -> None:
    key = secret_key(KEY)
    made = [jax.random.fold_in(key, 0), jax.random.fold_in(key, 1), *jax.random.split(key, 3)]
    drawn = np.stack([jax.random.bits(one, (64,)) for one in (key, *made)])
    shares = (drawn[:, None] == drawn[None]).mean(axis=-1)
    np.testing.assert_array_equal(shares, np.eye(len(drawn)))


@pytest.mark.slow
def test_every_width_is_uniform_and_a_normal_is_normal() -> None:
    key = secret_key(KEY)
    for kind, most in ((jnp.uint8, 2**8), (jnp.uint16, 2**16), (jnp.uint32, 2**32)):
        drawn = np.asarray(jax.random.bits(key, (20_000,), kind), np.float64) / most
        assert abs(drawn.mean() - 0.5) < 6 / (12 * 20_000) ** 0.5
    normal = np.asarray(jax.random.normal(key, (20_000,)))
    assert abs(normal.mean()) < 6 / 20_000**0.5
    assert abs(normal.std() - 1) < 6 / 40_000**0.5
    with pytest.raises(NotImplementedError, match="64 bits by ChaCha20; expected one of"):
        random_bits(jax.random.key_data(key), 64, (3,))


@pytest.mark.slow
def test_a_stream_from_a_key_is_folded_like_one_from_a_seed() -> None:
    key = secret_key(KEY)
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, Purpose.PRIVACY), 3), 7)
    found = jax.jit(lambda key: stream(key, Purpose.PRIVACY, 3, 7))(key)
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))
