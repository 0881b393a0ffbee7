"""Images split over devices: each device holds only those that its own clients use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShardedImages:
    """Images instead of an array `[samples, ...]` that is only indexed by rows, inside `over_clients`.

    pixels: `[devices * most, ...]`, split over the devices: each device has a block of `most` images.
    where: int32 `[devices * samples]`, split over the devices: for every sample its index in the device's block, 0 if
      it is not in the block.

    A sample that the device does not hold is read as another one; this must happen for padding rows only.
    """

    pixels: jax.Array
    where: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """`(samples, ...)`, as a device sees it."""
        return (len(self.where), *self.pixels.shape[1:])

    def __getitem__(self, places: jax.Array) -> jax.Array:
        """The images at positions of the data set, `[*places.shape, ...]`."""
        return self.pixels[self.where[places]]


def shard_images(images: np.ndarray, own: Sequence[np.ndarray], place: NamedSharding) -> ShardedImages:
    """Puts on each device the images of its own samples.

    Only this process's devices are filled, so that of a memory-mapped array only their images are read.

    Args:
      images: the images of all samples, `[samples, ...]`.
      own: the samples of each device, in ascending order.
      place: a sharding on the mesh of all devices.
    """
    devices = place.mesh.size
    most, samples = max(1, *map(len, own)), len(images)
    by_device = NamedSharding(place.mesh, PartitionSpec(place.mesh.axis_names))

    def block(index: Any) -> np.ndarray:
        rows = own[(index[0].start or 0) // most]
        return np.concatenate([images[rows], np.zeros((most - len(rows), *images.shape[1:]), images.dtype)])

    def table(index: Any) -> np.ndarray:
        rows = own[(index[0].start or 0) // samples]
        found = np.zeros(samples, np.int32)
        found[rows] = np.arange(len(rows))
        return found

    pixels = jax.make_array_from_callback((devices * most, *images.shape[1:]), by_device, block)
    return ShardedImages(pixels, jax.make_array_from_callback((devices * samples,), by_device, table))
