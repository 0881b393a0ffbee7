"""How many devices the clients of a round are split over."""

import contextlib

import jax

from fdgjax.utils.threads import cores

MOST_DEVICES = 8
"""The most devices of a process that are chosen automatically: each holds the whole state, and mostly all data."""

SHARING = 1.15
"""Slowdown of devices that share cores, as they take turns and evict each other's caches. Measured with hFedF's network
on two cores: four clients on four devices take 1.09 to 1.24 times as long as on two, three clients on three .83."""


def each_process() -> list[list[jax.Device]]:
    """The devices of each process, in the order of their ranks; of a single process, all that JAX sees."""
    devices = jax.devices()
    if jax.process_count() == 1:
        return [devices]
    return [[one for one in devices if one.process_index == rank] for rank in range(jax.process_count())]


def split_cpu(devices: int) -> None:
    """Splits the CPU into `devices` devices; no-op once JAX has started."""
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


def split_for(clients: int, data_bytes: int, free_bytes: int | None) -> None:
    """Splits the CPU for rounds of `clients` clients; no-op once JAX has started. Arguments as for
    `suitable_devices`."""
    # A later experiment of this process may need the cores that this one does not.
    split_cpu(max(cores(), fastest_devices(clients, cores(), most_devices(data_bytes, free_bytes))))


def suitable_devices(clients: int, data_bytes: int, free_bytes: int | None) -> int:
    """The number of JAX's devices on which a round takes least time; of several processes, equally many of each.

    Args:
      clients: participants of a round.
      data_bytes: size of the data, of which every device has a copy; on a CPU the copies take at most a quarter of the
        free memory.
      free_bytes: free memory, None where it is not known. Several processes ignore it, as they must choose the same
        number.
    """
    processes = each_process()
    seen, count = min(map(len, processes)), len(processes)
    if count > 1 or jax.default_backend() != "cpu":
        return count * fastest_devices(-(-clients // count), seen, min(seen, MOST_DEVICES))
    return fastest_devices(clients, cores(), min(seen, most_devices(data_bytes, free_bytes)))


def most_devices(data_bytes: int, free_bytes: int | None) -> int:
    """The most devices that a CPU is split into; see `suitable_devices`."""
    return MOST_DEVICES if free_bytes is None else max(1, min(MOST_DEVICES, free_bytes // (4 * max(data_bytes, 1))))


def fastest_devices(clients: int, processors: int, most: int) -> int:
    """The number of devices, 1 to `most`, with the least `round_time`; the smallest of equal ones."""
    return min(range(1, max(1, min(most, clients)) + 1), key=lambda count: round_time(clients, count, processors))


def round_time(clients: int, devices: int, processors: int) -> float:
    """The time of a round, in units of which a client with a processor to itself takes `processors`.

    Each device runs ceil(clients / devices) clients one after another; the last device in use may run fewer, and there
    may be devices without any. Up to `processors` devices run at full speed; more share the processors equally, at the
    cost of `SHARING`.
    """
    turns = -(-clients // devices)
    full, rest = divmod(clients, turns)
    busy = full + (rest > 0)
    shared = rest * max(busy, processors) + (turns - rest) * max(full, processors)
    return shared * (SHARING if busy > processors else 1)
