"""How many devices the clients of a round are split over."""

import contextlib

import jax

from fdgjax.threads import cores

MOST_DEVICES = 8
"""More of one process are not chosen by themselves: each has the whole state, and most often all data."""

SHARING = 1.15
"""What devices that share cores cost: they take turns, and each other's caches. Measured with hFedF's network on two
cores: four clients on four devices 1.09 to 1.24 times as long as on two, three clients on three .83."""


def each_process() -> list[list[jax.Device]]:
    """The devices of each process, by its number; of a single one, all that JAX sees."""
    devices = jax.devices()
    if jax.process_count() == 1:
        return [devices]
    return [[one for one in devices if one.process_index == rank] for rank in range(jax.process_count())]


def split_cpu(devices: int) -> None:
    """Makes a CPU so many devices; nothing, where JAX has started."""
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


def split_for(clients: int, data_bytes: int, free_bytes: int | None) -> None:
    """Splits a CPU for rounds of so many clients, where JAX has not started; see `suitable_devices`."""
    # A later experiment of this process may need the cores that this one does not.
    split_cpu(max(cores(), fastest_devices(clients, cores(), most_devices(data_bytes, free_bytes))))


def suitable_devices(clients: int, data_bytes: int, free_bytes: int | None) -> int:
    """The number of devices, of those that JAX sees, on which a round of so many clients takes least time; as many of
    each process, where there are several.

    Args:
      clients: those of a round.
      data_bytes: what every device keeps; a CPU's together keep at most a quarter of what is free.
      free_bytes: None where that is not known. Several processes do not look at it: they must choose the same.
    """
    processes = each_process()
    seen, count = min(map(len, processes)), len(processes)
    if count > 1 or jax.default_backend() != "cpu":
        return count * fastest_devices(-(-clients // count), seen, min(seen, MOST_DEVICES))
    return fastest_devices(clients, cores(), min(seen, most_devices(data_bytes, free_bytes)))


def most_devices(data_bytes: int, free_bytes: int | None) -> int:
    """Those of a CPU that are chosen at most; see `suitable_devices`."""
    return MOST_DEVICES if free_bytes is None else max(1, min(MOST_DEVICES, free_bytes // (4 * max(data_bytes, 1))))


def fastest_devices(clients: int, processors: int, most: int) -> int:
    """The number of devices, 1 to `most`, of least `round_time`; of equal ones the smallest."""
    return min(range(1, max(1, min(most, clients)) + 1), key=lambda count: round_time(clients, count, processors))


def round_time(clients: int, devices: int, processors: int) -> float:
    """How long a round takes, where one client alone on a processor takes the time `1 / processors`.

    Each device takes its ceil(clients / devices) clients one after another; the last that has any may have fewer, or
    there are devices without. As many devices as processors run at full speed; more share them alike, at a cost.
    """
    turns = -(-clients // devices)
    full, rest = divmod(clients, turns)
    busy = full + (rest > 0)
    shared = rest * max(busy, processors) + (turns - rest) * max(full, processors)
    return shared * (SHARING if busy > processors else 1)
