"""`--distributed`: this process as one of several, on one machine or on many, that run one program.

JAX's runtime joins the processes, computes over all of them and notices where one is lost. Every process calls the same
functions in the same order; what process 0, the coordinator, reads or decides goes to the others by `broadcast`.
"""

import atexit
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fdgjax.utils.command import MISTAKE
from fdgjax.utils.errors import UserError

OPTION, AUTO, BY_HAND = "distributed", "auto", "HOST:PORT,RANK,COUNT"
JOINING_SECONDS = 300.0
"""How long processes wait for one another at the start."""
HEARTBEAT_SECONDS = 30
"""How long JAX waits for a sign of life of a process before it ends the others. JAX's default is 100."""
LEAVING_SECONDS = 5.0
"""How long a process that failed waits for the others to come to the same end."""
EXPECTED = f"expected --{OPTION}={AUTO}, or --{OPTION}={BY_HAND} such as 10.0.0.1:9876,0,2"


class ProcessAddress(NamedTuple):
    """A process's place among several; all None where JAX finds it.

    address: `HOST:PORT`, where process 0 listens. rank: this one's number. size: the number of processes.
    """

    address: str | None = None
    rank: int | None = None
    size: int | None = None


def split_off(argv: Sequence[str]) -> tuple[list[str], ProcessAddress | None]:
    """The arguments without `--distributed`, and what it says; None where it is not given.

    Raises:
      UserError: a value that is none.
    """
    rest: list[str] = []
    place = None
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("-") and name.lstrip("-") == OPTION:
            place = read_place(value if equals else next(words, ""))
        else:
            rest.append(word)
    return rest, place


def read_place(text: str) -> ProcessAddress:
    """A value of `--distributed`; raises a `UserError` for one that is none."""
    if text == AUTO:
        return ProcessAddress()
    address, *numbers = text.split(",")
    host, _, port = address.rpartition(":")
    if len(numbers) != 2 or not all(one.isdecimal() for one in (port, *numbers)) or not host:
        raise UserError(f"--{OPTION} got '{text}'; {EXPECTED}")
    rank, count = map(int, numbers)
    if rank >= count or not 0 < int(port) < 2**16:
        raise UserError(
            f"--{OPTION} got '{text}'; expected a port below 65536 and RANK from 0 to COUNT - 1; {EXPECTED}"
        )
    return ProcessAddress(address, rank, count)


def await_process_0(address: str) -> None:
    """Returns once something listens at the address; raises a `UserError` where nothing does in time."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + JOINING_SECONDS
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"--{OPTION}={address} reached no process 0 within {JOINING_SECONDS:.0f} s "
                    f"({error.strerror or error}); expected it to run there; start it, and see that "
                    "this machine can reach HOST:PORT"
                ) from error
        time.sleep(0.5)


def join_processes(place: ProcessAddress) -> None:
    """Joins this process to the others, before JAX looks for devices; returns once all have come.

    Raises:
      UserError: no cluster that JAX knows, a process 0 that cannot be reached, or not all came within five minutes.
    """
    # The first signal is the run's own request to save and stop (`fdgjax.cli.train`), which the service would take
    # over.
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if place.address is not None and place.rank:
        await_process_0(place.address)  # in vain, JAX would end the process with a stack trace
    try:
        if place.address is None:
            jax.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
        else:
            jax.distributed.initialize(
                *(place.address, place.size, place.rank),
                cluster_detection_method="deactivate",
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--{OPTION}={place.address or AUTO} joined no other processes ({reason}); {EXPECTED}, with a process 0 "
            "that all can reach and every process started within five minutes"
        ) from error


class Stop(Protocol):
    """Whether a stop is requested; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is."""
        ...


class AnyStop(NamedTuple):
    """A stop that is set in all processes where it is in any: a collective, so that all ask equally often."""

    own: Stop

    def is_set(self) -> bool:
        """Whether a stop is requested in any process."""
        from jax.experimental import multihost_utils

        return bool(multihost_utils.process_allgather(np.asarray(self.own.is_set())).any())


def is_distributed() -> bool:
    """Whether several processes run this program. Does not start JAX's backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_coordinator() -> bool:
    """Whether this process decides, and writes what the run leaves behind: process 0 does."""
    return not is_distributed() or jax.process_index() == 0


def any_stop(stop: Stop) -> Stop:
    """A stop that every process sees at the same look, whichever was asked."""
    return AnyStop(stop) if is_distributed() else stop


def broadcast(decide: Callable[[], Any]) -> Any:
    """What a function returns in process 0, which alone calls it, in every process: JSON.

    Raises:
      UserError: the one that the function raises, in every process.
    """
    if not is_distributed():
        return decide()
    from jax.experimental import multihost_utils

    content = b""
    if is_coordinator():
        try:
            content = json.dumps({"value": decide()}).encode()
        except UserError as error:
            content = json.dumps({"error": str(error)}).encode()
    # All processes must know the size beforehand.
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    sent = np.frombuffer(content.ljust(size), np.uint8)
    received = json.loads(np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes())
    if "error" in received:
        raise UserError(received["error"])
    return received["value"]


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """The processes that JAX has joined, for the length of the block: where one fails, none waits for it for ever.

    At its exit a process that failed waits for the others no longer than `LEAVING_SECONDS`; JAX would wait for minutes.
    The others end with their next computation, or are ended by JAX: at once where process 0 is gone, else as the
    heartbeats stop.

    Raises:
      UserError: processes with different numbers of devices, or a computation that failed.
    """
    if not is_distributed():
        yield
        return
    try:
        check_devices()
        yield
    except BaseException as error:
        failed = is_lost(error)
        atexit.register(leave, MISTAKE if failed or isinstance(error, UserError | OSError | MemoryError) else 1)
        if not failed:
            raise
        raise UserError(
            f"computing with the other processes failed ({' '.join(str(error).split())[:200]}); expected every "
            "process until the run's end; the same commands go on from the last checkpoint"
        ) from error


def is_lost(error: BaseException) -> bool:
    """Whether a computation failed, as it does without one of the processes. Where JAX computes at once, Gloo's failure
    is a ValueError."""
    return isinstance(error, jax.errors.JaxRuntimeError) or (isinstance(error, ValueError) and "Gloo" in str(error))


def check_devices() -> None:
    """Raises a `UserError` where processes have different numbers of devices."""
    ranks = [one.process_index for one in jax.devices()]
    numbers = [ranks.count(rank) for rank in range(jax.process_count())]
    if len(set(numbers)) > 1:
        raise UserError(
            f"the processes have {', '.join(map(str, numbers))} devices; expected equally many; set "
            f"--config.devices to a multiple of {len(numbers)}, or make the machines alike"
        )


def leave(status: int) -> None:
    """Ends this process, together with the others where they come to the same end, else without them."""

    def shut_down() -> None:
        with contextlib.suppress(Exception):  # the others may be gone
            jax.distributed.shutdown()

    together = threading.Thread(target=shut_down, daemon=True)
    together.start()
    together.join(LEAVING_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
