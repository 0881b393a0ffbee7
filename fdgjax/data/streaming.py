"""Images that stay on disk: a compiled program requests the rows of each batch from the host.

The program requests the same rows at the same steps as it would read from an array in the device's memory; only the
source of the bytes differs. So samples, their order and random views are the same, and so are the results, to rounding,
as another program is compiled (tested on CPUs only).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import numpy as np

if TYPE_CHECKING:  # only for the protocol: streaming does not need Grain at run time
    from grain.sources import RandomAccessDataSource

PLACES_AT_ONCE = 2**14
"""Maximum number of positions in one array passed to the host. XLA copies an array below 100 KiB immediately, but a
larger one on a thread of a pool: if the programs on a CPU's devices occupy all these threads, each waiting for its
images, no thread is left to copy, and they deadlock."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Streamed:
    """Images on the host, instead of an array `[samples, height, width, channels]` that is only indexed by rows.

    To JAX it is a static pytree without arrays: it takes no device memory, is not an argument of a compiled program,
    and causes no retrace as long as it is the same object. A program that indexes it calls the host for each batch,
    waits for the images, and is not kept in JAX's persistent compilation cache; beside an accelerator JAX needs its
    CPU backend, which is available unless `JAX_PLATFORMS` excludes it.

    source: Grain's `RandomAccessDataSource` of uint8 `[height, width, channels]`, or of features of images, float32
      `[...]`, safe to be read by several threads: a memory-mapped array is one, and so is a `grain.MapDataset`. It is
      read record by record without a Grain pipeline, whose overhead per record exceeds the copy of a small image.
    """

    source: RandomAccessDataSource[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """`(samples, height, width, channels)`."""
        return (len(self.source), *self.source[0].shape)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, places: jax.Array) -> jax.Array:
        """Rows, `[*places.shape, height, width, channels]`, at places that must be within bounds; works inside
        and outside of compiled programs."""
        image_shape = self.shape[1:]

        @jax.custom_batching.custom_vmap
        def rows(places: jax.Array) -> jax.Array:
            like = jax.ShapeDtypeStruct((math.prod(places.shape), *image_shape), self.source[0].dtype)
            flat = places.reshape(-1)
            pieces = [flat[start : start + PLACES_AT_ONCE] for start in range(0, len(flat), PLACES_AT_ONCE)]
            found = jax.pure_callback(self.read, like, *pieces)
            return found.reshape(*places.shape, *image_shape)

        @rows.def_vmap
        def _(size: int, batched: list[bool], places: jax.Array) -> tuple[jax.Array, bool]:
            # One call for all clients' rows: their number is static, so that the places can be cut into pieces.
            del size, batched
            return rows(places), True

        return rows(places)

    def read(self, *places: jax.Array) -> np.ndarray:
        """The records at arrays of positions, `[n]` each, as one array; uses NumPy only, since JAX called from a host
        callback can deadlock."""
        return np.stack([self.source[int(place)] for piece in places for place in np.asarray(piece)])
