"""Images of which each device has only those that its own clients use."""

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
    """Images in the place of an array `[samples, ...]` that is only indexed by rows, inside of `over_clients`.

    pixels: `[devices * most, ...]`, split over the devices: a device has a block of `most` images.
    where: int32 `[devices * samples]`, split over the devices: for each of all samples its place in the device's block,
      0 for those it does not have.

    A device that asks for a sample it does not have gets another: that is only to happen for rows that are padding.
    """

    pixels: jax.Array
    where: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """`(samples, ...)`, as a device sees it."""
        return (len(self.where), *self.pixels.shape[1:])

    def __getitem__(self, places: jax.Array) -> jax.Array:
        """The images at some places of the data set, `[*places.shape, ...]`."""
        return self.pixels[self.where[places]]


def shard_images(images: np.ndarray, own: Sequence[np.ndarray], place: NamedSharding) -> ShardedImages:
    """The images of each device's own samples.

    Only this process's devices are filled, so only their images are read of an array that lies on the disk.

    Args:
      images: of all samples, `[samples, ...]`.
      own: the samples of each device, in ascending order.
      place: over all the devices' mesh.
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
