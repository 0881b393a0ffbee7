"""Where an experiment's data lie: whole on every device, or with images only at the devices whose clients use them."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding

from fdgjax.contract import Execution, PyTree
from fdgjax.data.federation import Federation, stack_seeds
from fdgjax.data.held import hold
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
    images = both[0].images
    if isinstance(images, Streamed) and not streaming:
        source = np.asarray(images.source)
        images = hold(source, federations, place) if apart else on_every_device(source, place)

    def placed(one: Federation) -> Federation:
        tables = on_every_device({**one._asdict(), "images": ()}, place)
        return Federation(**{**tables, "images": images})

    return placed(both[0]), placed(both[1])


def on_every_device(tree: PyTree, place: NamedSharding) -> PyTree:
    """Replicates arrays that every process has on all devices; nothing is sent, as each process fills its own
    devices."""

    def put(leaf: jax.Array) -> jax.Array:
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, place, lambda index: host[index])

    return jax.tree.map(put, tree)
