"""Images that stay on disk: a compiled program asks the host for the rows of each batch.

What is asked for, and when, is what would have been taken of an array in the device's memory; only where the bytes come
from differs. So samples, their order and random views are the same, and on a CPU every number is, bit for bit. (On
other devices nobody has looked whether XLA rounds the two programs alike.)
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:  # only the protocol: streaming needs nothing of Grain to run
    from grain.sources import RandomAccessDataSource

PLACES_AT_ONCE = 2**14
"""Of one array handed to the host: below 100 KiB, which XLA copies at once. Longer ones it copies on threads of a pool,
and where programs on a CPU's devices hold all of these, each waiting for its images, none is left to copy and all wait
forever."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Streamed:
    """Images on the host, in the place of an array `[samples, height, width, channels]` of which only rows are taken.

    To JAX it is a pytree without arrays: nothing of it lies on a device, it is no argument of a compiled program, and
    it is the same to a trace as long as it is the same object. A program that takes rows talks to the host for each
    batch, waits for them, and is not kept in JAX's persistent compilation cache; beside an accelerator JAX needs its
    CPU backend, which is there unless `JAX_PLATFORMS` leaves it out.

    source: Grain's `RandomAccessDataSource` of uint8 `[height, width, channels]`, safe to be read by several threads: a
      memory-mapped array is one, and so is a `grain.MapDataset`. It is read record by record without a Grain pipeline,
      whose account of each record takes longer than copying a small image.
    """

    source: RandomAccessDataSource[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """`(samples, height, width, channels)`."""
        return (len(self.source), *self.source[0].shape)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, places: jax.Array) -> jax.Array:
        """Rows, uint8 `[*places.shape, height, width, channels]`, at places that are all there; inside and outside of
        compiled programs."""
        image_shape = self.shape[1:]

        @jax.custom_batching.custom_vmap
        def rows(places: jax.Array) -> jax.Array:
            like = jax.ShapeDtypeStruct((math.prod(places.shape), *image_shape), jnp.uint8)
            flat = places.reshape(-1)
            pieces = [flat[start : start + PLACES_AT_ONCE] for start in range(0, len(flat), PLACES_AT_ONCE)]
            found = jax.pure_callback(self.read, like, *pieces)
            return found.reshape(*places.shape, *image_shape)

        @rows.def_vmap
        def _(size: int, batched: list[bool], places: jax.Array) -> tuple[jax.Array, bool]:
            # All clients' rows by one call, and a number of places that is known where it is cut into pieces.
            del size, batched
            return rows(places), True

        return rows(places)

    def read(self, *places: jax.Array) -> np.ndarray:
        """The records at some places, `[n]` each, as one array; NumPy alone, since JAX called from inside a program can
        wait for itself."""
        return np.stack([self.source[int(place)] for piece in places for place in np.asarray(piece)])
