"""Rows that the host is asked for are the rows of the array, wherever they are asked for."""

from typing import Any

import chex
import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.streaming import PLACES_AT_ONCE, Streamed

IMAGES = np.random.default_rng(3).integers(0, 256, (30, 2, 3, 1), np.uint8)
XLA_COPIES_AT_ONCE = 100 * 1024
"""Bytes; a longer array it copies on a thread, which may not be free while a program waits for its images."""


def test_it_is_no_array_to_jax_and_has_the_shape_of_one() -> None:
    streamed = Streamed(IMAGES)
    assert streamed.shape == IMAGES.shape
    assert len(streamed) == len(IMAGES)
    assert jax.tree.leaves(streamed) == []
    # Two are never mistaken for each other: a program compiled for the one would read its images for the other's.
    structure: Any = jax.tree.structure
    assert structure(streamed) == structure(streamed) != structure(Streamed(IMAGES))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)], ids=str)
def test_rows_inside_and_outside_of_programs(shape: tuple[int, ...]) -> None:
    streamed, places = Streamed(IMAGES), np.random.default_rng(1).integers(0, 30, shape).astype(np.int32)
    for take in (streamed.__getitem__, jax.jit(streamed.__getitem__)):
        got = take(jnp.asarray(places))
        chex.assert_type(got, jnp.uint8)
        np.testing.assert_array_equal(got, IMAGES[places])


def watched() -> tuple[Streamed, list[list[int]]]:
    """The images, and the bytes of places of each request for them."""
    asked: list[list[int]] = []

    class Watched(Streamed):
        def read(self, *places: Any) -> np.ndarray:
            asked.append([piece.nbytes for piece in places])
            return super().read(*places)

    return Watched(IMAGES), asked


def test_all_clients_and_seeds_ask_at_once() -> None:
    (streamed, asked), places = watched(), jnp.arange(24).reshape(2, 3, 4)
    for over in (jax.vmap, lambda function: lambda rows: jax.lax.map(function, rows)):
        got = jax.jit(over(jax.vmap(streamed.__getitem__)))(places)
        np.testing.assert_array_equal(got, IMAGES[places])
    assert asked == [[4 * 24], [4 * 12], [4 * 12]]


def test_no_program_waits_for_itself() -> None:
    # Handed over in one piece these places would be copied on a thread that may be waiting for them.
    streamed, asked = watched()
    places = jnp.arange(3 * PLACES_AT_ONCE, dtype=jnp.int32).reshape(6, -1) % 30
    np.testing.assert_array_equal(jax.jit(jax.vmap(streamed.__getitem__))(places), IMAGES[places])
    (pieces,) = asked
    assert sum(pieces) == places.nbytes
    assert max(pieces) < XLA_COPIES_AT_ONCE


def test_any_random_access_source_of_grain_will_do(tmp_path: Any) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    brighter = grain.MapDataset.source(IMAGES // 2).map(lambda image: image + 7)
    places = jnp.asarray([4, 0, 29, 4])
    for source, wanted in ((mapped, IMAGES), (brighter, IMAGES // 2 + 7)):
        assert isinstance(source, grain.sources.RandomAccessDataSource)
        np.testing.assert_array_equal(Streamed(source)[places], wanted[np.asarray(places)])
