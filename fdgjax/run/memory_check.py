"""The memory that compiled programs need, what is free, and the peak."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jax.stages import Compiled

from fdgjax.contract import PyTree
from fdgjax.utils.errors import EXHAUSTED, UserError
from fdgjax.utils.process_memory import available_bytes, peak_resident_bytes, total_bytes
from fdgjax.utils.variables import bytes_of

MEBIBYTE = 2**20


class TooLarge(UserError):
    """A program that does not fit in memory; with fewer runs at a time it may."""


class Memory(NamedTuple):
    """Bytes that training takes on the device that needs most (on a CPU: on all its devices together).

    data: the federation, without images that stay on the host. state: the run's state, which a round updates in place.
    work: what a program additionally needs while it runs, clients' updates included.
    """

    data: int
    state: int
    work: int

    @property
    def total(self) -> int:
        """All three."""
        return sum(self)

    def __str__(self) -> str:
        data, state, work, total = (round(bytes_ / MEBIBYTE) for bytes_ in (*self, self.total))
        return f"{total:,} MiB predicted for a round (data {data:,}, state {state:,}, work {work:,})"


def predict_memory(programs: Sequence[Compiled], data: PyTree, state: PyTree, devices: int) -> Memory:
    """The memory that the programs will take, from XLA's analysis of each; they run one after another.

    Args:
      programs: called with data and state, each of which every device holds in full.
      data, state: the arguments; an array that appears twice counts once.
      devices: number of devices.
    """
    copies = copies_in_memory(devices)
    sizes = (tree_bytes(data), tree_bytes(state), max(map(work_bytes, programs)))
    return Memory(*(copies * size for size in sizes))


def work_bytes(program: Compiled) -> int:
    """What one device needs for a program besides its arguments: temporaries, and results without a donated buffer."""
    memory = program.memory_analysis()
    if memory is None:  # a backend without this analysis
        return 0
    return int(memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes)


def tree_bytes(tree: PyTree) -> int:
    """The bytes of a tree's arrays that one device holds, each array counted once."""

    def of_device(leaf: jax.Array) -> int:
        if jax.process_count() == 1:
            return leaf.nbytes
        return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize

    return sum({id(leaf): of_device(leaf) for leaf in jax.tree.leaves(tree)}.values())


def shortage(memory: Memory, free: int | None) -> str | None:
    """A warning, with remedies, if a round's working memory exceeds what is `free` now; None if it fits.

    Data and state are not counted, as they are already allocated.
    """
    if free is None or memory.work <= free:
        return None
    return (
        f"memory: a round needs {memory.work / MEBIBYTE:,.0f} MiB more and {free / MEBIBYTE:,.0f} MiB are free; "
        "it may be killed: set --config.client_axis=map, or chunk with a small --config.chunk, or lower "
        "--config.batch_size"
    )


def refuse_shortage(memory: Memory, free: int | None) -> None:
    """Raises `TooLarge` if `shortage` returns a warning."""
    if warning := shortage(memory, free):
        raise TooLarge(warning)


def copies_in_memory(devices: int) -> int:
    """How many copies of what every device holds are in one memory: the devices of a CPU share its own."""
    return devices // jax.process_count() if jax.default_backend() == "cpu" else 1


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means too little memory: predicted, or reported by Python's or a device's allocator."""
    return isinstance(error, TooLarge | MemoryError) or EXHAUSTED in str(error)


def refuse_impossible(state: PyTree, devices: int, capacity: int | None) -> None:
    """Raises `TooLarge` if a run's state alone (given as arrays or their shapes) exceeds the total memory."""
    needed = copies_in_memory(devices) * bytes_of(state)
    if capacity is not None and needed > capacity:
        raise TooLarge(
            f"the state of the run needs {needed / MEBIBYTE:,.0f} MiB of memory and there are "
            f"{capacity / MEBIBYTE:,.0f}; expected a model that fits; lower config.model.width, or the number of "
            "clients, seeds or devices"
        )


def device_memory() -> dict[str, int]:
    """The device's own memory statistics; empty on a CPU."""
    return jax.local_devices()[0].memory_stats() or {}


def free_bytes() -> int | None:
    """Memory that a program may still take; None if neither the device nor the system reports it."""
    stats = device_memory()
    return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else available_bytes()


def capacity_bytes() -> int | None:
    """The total memory; None if neither the device nor the system reports it."""
    return device_memory().get("bytes_limit") or total_bytes()


def peak_bytes() -> int:
    """The peak memory so far: the device's if it reports one, else the whole process's."""
    return device_memory().get("peak_bytes_in_use") or peak_resident_bytes()


def peak_in_words(peak: int) -> str:
    """The peak in words, and whether it is the device's or the process's."""
    whose = "device" if device_memory() else "whole process, libraries and compilation included"
    return f"{peak / MEBIBYTE:,.0f} MiB at the peak of the {whose}"
