"""Where an experiment's data lie: whole on every device, or with images only at the devices whose clients use them."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding

from fdgjax.contract import Execution, PyTree
from fdgjax.data.federation import Federation, stack_seeds
from fdgjax.data.sharded import shard_images
from fdgjax.data.streaming import Streamed
from fdgjax.engine.clients import everywhere


def several_processes() -> bool:
    """Whether this process is one of several that JAX has joined to one program."""
    return jax.process_count() > 1


def place_data(
    federations: Sequence[Federation],
    trained_on: Sequence[Federation],
    execution: Execution,
    *,
    streaming: bool,
    apart: bool,
) -> tuple[Federation, Federation]:
    """The federation as it is evaluated and as it is trained on, each of all seeds, on the devices.

    Args:
      federations, trained_on: of each seed. With several processes the images are still `Streamed`, so that each reads
        only those that it puts on its devices.
      execution: which devices.
      streaming: whether images stay on the host.
      apart: whether each client's images are used on its own device only, so that they may be stored only there. A
        single process stores all images on every device nevertheless.
    """
    both, place = (stack_seeds(federations), stack_seeds(trained_on)), everywhere(execution)
    if not several_processes():
        return jax.device_put(both, place)
    assert place is not None, "several processes have several devices"
    images = both[0].inputs
    if isinstance(images, Streamed) and not streaming:
        source = np.asarray(images.source)
        images = (
            shard_images(source, own_samples(federations, place.mesh.size), place)
            if apart
            else on_every_device(source, place)
        )

    def placed(one: Federation) -> Federation:
        tables = on_every_device({**one._asdict(), "inputs": ()}, place)
        return Federation(**{**tables, "inputs": images})

    return placed(both[0]), placed(both[1])


def on_every_device(tree: PyTree, place: NamedSharding) -> PyTree:
    """Replicates arrays that every process has on all devices; nothing is sent, as each process fills its own
    devices."""

    def put(leaf: jax.Array) -> jax.Array:
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, place, lambda index: host[index])

    return jax.tree.map(put, tree)


def own_samples(federations: Sequence[Federation], devices: int) -> list[np.ndarray]:
    """For each device the samples of its own clients, and those of the unseen domain, which every device has, with
    their augmented copies, if any."""
    images, samples = federations[0].inputs.shape[0], len(federations[0].labels)
    own = [used_samples(federations, device, devices) for device in range(devices)]
    return [np.concatenate([rows + start for start in range(0, images, samples)]) for rows in own]


def used_samples(federations: Sequence[Federation], device: int, devices: int) -> np.ndarray:
    """The samples, in order, of a device's clients in every seed, and of the unseen domain."""
    rows: list[np.ndarray] = []
    for federation in federations:
        share = -(-len(federation.ids) // devices)
        mine = slice(device * share, (device + 1) * share)
        tables = [(table, mine) for table in (federation.train, federation.validation, federation.test)]
        for table, which in [*tables, (federation.target, slice(None))]:
            places, lengths = np.asarray(table.places)[which], np.asarray(table.length)[which]
            rows += [row[:length] for row, length in zip(places, lengths, strict=True)]
    return np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int32)
