"""How many devices the clients of a round are split over, and which device runs which clients.

A client's work is its number of steps. Clients are assigned longest first, each to the device that has least work
(Graham 1969: the last device ends at most 4/3 - 1/(3 devices) times as late as with the best assignment).
"""

import contextlib
import heapq
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.engine.core_speeds import CoreSpeeds, core_speeds, extreme_speeds
from fdgjax.utils.processor import cores

MOST_DEVICES = 8
"""The most devices of a process that are chosen automatically: each holds the whole state, and mostly all data."""
DRAWS = 20
"""Draws of participants whose mean time counts, where a round has some of the clients only."""
WORTH = 0.97
"""Clients are assigned by their work if the last device then ends before this share of the time that equally many
clients for each device take: such an assignment needs memory for all clients' messages on every device."""
SHARED = 1.05
"""What more devices than cores must gain: each needs memory of its own and a few milliseconds of each round."""
TURN_FLOPS = 3e7
"""What a step costs more on a core that devices take turns on, in operations of a network: .2 to .4 milliseconds."""

Steps = Sequence[np.ndarray]
"""Of each of several rounds that may come, the steps of its participants, `[participants]`."""


def each_process() -> list[list[jax.Device]]:
    """The devices of each process, in the order of their ranks; of a single process, all that JAX sees."""
    devices = jax.devices()
    if jax.process_count() == 1:
        return [devices]
    return [[one for one in devices if one.process_index == rank] for rank in range(jax.process_count())]


def split_cpu(devices: int) -> None:
    """Splits the CPU into `devices` devices, or into as many as JAX is already set to, if these are more; no-op once
    JAX has started."""
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", max(devices, jax.config.values["jax_num_cpu_devices"]))


def split_for(rounds: Steps, data_bytes: int, free_bytes: int | None, step_flops: float = math.inf) -> None:
    """Splits the CPU for such rounds; no-op once JAX has started. Arguments as for `suitable_devices`."""
    # A later experiment of this process may need the cores that this one does not.
    split_cpu(max(cores(), fastest_on_cpu(rounds, most_devices(data_bytes, free_bytes), step_flops)))


def suitable_devices(rounds: Steps, data_bytes: int, free_bytes: int | None, step_flops: float = math.inf) -> int:
    """The number of JAX's devices on which a round takes least time; of several processes, equally many of each.

    Args:
      rounds: the steps of the clients of a round; of several rounds the mean time counts.
      data_bytes: size of the data, of which every device has a copy; on a CPU the copies take at most a quarter of the
        free memory.
      free_bytes: free memory, None where it is not known. Several processes ignore it, as they must choose the same
        number.
      step_flops: floating-point operations of one training step; where they are few, devices that share cores lose
        more by taking turns than they gain.
    """
    processes = each_process()
    seen, count = min(map(len, processes)), len(processes)
    if count > 1 or jax.default_backend() != "cpu":
        each = [np.ones(-(-len(steps) // count), int) for steps in rounds]
        return count * fastest_devices(each, seen, min(seen, MOST_DEVICES), CoreSpeeds(alone=1.0, sharing=1.0))
    return fastest_on_cpu(rounds, min(seen, most_devices(data_bytes, free_bytes)), step_flops)


def fastest_on_cpu(rounds: Steps, most: int, step_flops: float = math.inf) -> int:
    """`fastest_devices` with this machine's cores, whose speeds are measured only if the choice depends on them."""

    def fastest(speeds: CoreSpeeds) -> int:
        sharing = speeds.sharing + TURN_FLOPS / max(step_flops, 1)
        return fastest_devices(rounds, cores(), most, speeds._replace(sharing=sharing))

    choices = set(map(fastest, extreme_speeds(cores())))
    return choices.pop() if len(choices) == 1 else fastest(core_speeds())


def most_devices(data_bytes: int, free_bytes: int | None) -> int:
    """The most devices that a CPU is split into; see `suitable_devices`."""
    return MOST_DEVICES if free_bytes is None else max(1, min(MOST_DEVICES, free_bytes // (4 * max(data_bytes, 1))))


def fastest_devices(rounds: Steps, processors: int, most: int, speeds: CoreSpeeds) -> int:
    """The number of devices, 1 to `most`, with the least mean `round_time`; the smallest of equal ones. Devices that
    share cores must gain something (`SHARED`)."""
    largest = max(1, min(most, *(len(steps) for steps in rounds)))

    def mean_time(devices: int) -> float:
        slots = clients_per_device(rounds, devices)
        times = [round_time(loads(steps, devices, slots), processors, speeds) for steps in rounds]
        return sum(times) / len(times)

    def price(devices: int) -> float:
        return round(mean_time(devices) * (SHARED if devices > processors else 1), 9)

    return min(range(1, largest + 1), key=price)


def round_time(work: np.ndarray, processors: int, speeds: CoreSpeeds) -> float:
    """The time of a round whose devices have so much work, `[devices]`, in steps of a device on a core of its own.

    Devices that are done wait for the others, each with a thread, of which a CPU has one for each core or, if there are
    more, for each device. A device with t threads and cores to itself is `alone^(log t / log processors)` times as fast
    as with one; devices that share cores have equal shares of them, at the cost of `sharing`.
    """
    left, passed, done = np.sort(work[work > 0]), 0.0, 0.0
    exponent = math.log(speeds.alone) / math.log(processors) if processors > 1 else 0.0
    for index, load in enumerate(left):
        busy = len(left) - index
        waiting = len(work) - busy
        threads = min(max(processors, len(work)) - waiting, processors) / busy
        passed += float(load - done) / (threads**exponent if threads >= 1 else threads / speeds.sharing)
        done = load
    return passed


def drawn_rounds(steps: Steps, participants: int) -> list[np.ndarray]:
    """The rounds that count for a choice: `steps` of all clients, `[clients]` for each seed, or of `participants` of
    them, drawn `DRAWS` times."""
    rng = np.random.default_rng(0)
    if participants >= len(steps[0]):
        return list(steps)
    return [own[np.sort(rng.permutation(len(own))[:participants])] for own in steps for _ in range(DRAWS)]


def clients_per_device(rounds: Steps, devices: int) -> int:
    """The most clients that a device gets where they are assigned by their work; 0 where an equal number for each
    device, in the clients' order, takes about as long."""
    in_order = sum(loads(steps, devices, 0).max() for steps in rounds)
    by_work = sum(loads(steps, devices, len(steps)).max() for steps in rounds)
    if by_work > WORTH * in_order:
        return 0
    return max(int(np.bincount(longest_first(steps, devices)).max()) for steps in rounds)


def loads(steps: np.ndarray, devices: int, slots: int) -> np.ndarray:
    """The steps of each device, `[devices]`; slots: see `clients_per_device`."""
    own = longest_first(steps, devices) if slots else np.arange(len(steps)) // -(-len(steps) // devices)
    return np.bincount(own, weights=steps, minlength=devices)


def longest_first(steps: np.ndarray, devices: int) -> np.ndarray:
    """Each client's device, `[clients]`: longest first, to the device with the least work."""
    idle, device = [(0, index) for index in range(devices)], np.zeros(len(steps), int)
    for client in np.argsort(-steps, kind="stable"):
        work, device[client] = heapq.heappop(idle)
        heapq.heappush(idle, (work + int(steps[client]), device[client]))
    return device


def assigned_slots(steps: jax.Array, devices: int, slots: int) -> jax.Array:
    """Each client's place among the `devices * slots` places of all devices, `[clients]`, by `longest_first`, computed
    in the round's program: the participants differ from round to round. No device gets more than `slots` clients."""

    def assign(carry: tuple[jax.Array, jax.Array], own: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        work, clients = carry
        device = jnp.argmin(jnp.where(clients < slots, work, jnp.iinfo(jnp.int32).max))
        place = device * slots + clients[device]
        return (work.at[device].add(own), clients.at[device].add(1)), place

    order = jnp.argsort(-steps, stable=True)
    _, places = jax.lax.scan(assign, (jnp.zeros(devices, jnp.int32), jnp.zeros(devices, jnp.int32)), steps[order])
    return jnp.zeros(len(steps), jnp.int32).at[order].set(places.astype(jnp.int32))
