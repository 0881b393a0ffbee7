"""`--distributed`: several processes, on one machine or on many, that run one program.

JAX's runtime joins the processes, computes over all of them and detects when one is lost. Every process calls the same
functions in the same order; `broadcast` sends to all what process 0, the coordinator, reads or decides.
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

from fdgjax.utils.command import MISTAKE, refuse
from fdgjax.utils.errors import UserError, reason_of

OPTION, AUTO, BY_HAND = "distributed", "auto", "HOST:PORT,RANK,COUNT"
JOINING_SECONDS = 300.0
"""How long processes wait for one another when they start."""
ALONE_SECONDS = 60.0
"""How much longer JAX would wait: it then aborts with a stack trace, where `ends_alone` has said why in one line."""
HEARTBEAT_SECONDS = 30
"""How long JAX waits for a process's heartbeat before it ends the other processes. JAX's default is 100."""
LEAVING_SECONDS = 5.0
"""How long a process that failed waits for the others to shut down, too."""
EXPECTED = f"expected --{OPTION}={AUTO}, or --{OPTION}={BY_HAND} such as 10.0.0.1:9876,0,2"


class ProcessAddress(NamedTuple):
    """A process's address and rank among several; all fields are None if JAX is to detect them.

    address: `HOST:PORT`, where process 0 listens. rank: this process's number. size: the number of processes.
    """

    address: str | None = None
    rank: int | None = None
    size: int | None = None


def split_off(argv: Sequence[str]) -> tuple[list[str], ProcessAddress | None]:
    """The arguments without `--distributed`, and its value; None if it is not given.

    Raises:
      UserError: `--distributed` has an invalid value.
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
    """Parses a value of `--distributed`; raises a `UserError` if it is invalid."""
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
    """Returns once a process listens at the address; raises a `UserError` if none does in time."""
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
    """Joins this process to the others, before JAX looks for devices; returns once all have joined.

    Raises:
      UserError: JAX detects no cluster, process 0 cannot be reached, or not all processes joined within five minutes.
    """
    # A first signal asks the run to save and stop (`fdgjax.cli.train`); JAX's preemption service would intercept it.
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if place.address is not None and place.rank:
        await_process_0(place.address)  # if JAX's own attempt failed, it would abort with a stack trace
    how: dict[str, Any] = {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "initialization_timeout": int(JOINING_SECONDS + ALONE_SECONDS),
    }
    try:
        with ends_alone(place):
            if place.address is None:
                jax.distributed.initialize(**how)
            else:
                own = (place.address, place.size, place.rank)
                jax.distributed.initialize(*own, cluster_detection_method="deactivate", **how)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        reason = reason_of(error)
        raise UserError(
            f"--{OPTION}={place.address or AUTO} joined no other processes ({reason}); {EXPECTED}, with a process 0 "
            "that all can reach and every process started within five minutes"
        ) from error


@contextlib.contextmanager
def ends_alone(place: ProcessAddress) -> Iterator[None]:
    """Ends this process with one line if the block, in which JAX waits for the other processes, takes too long."""

    def end() -> None:
        refuse(
            f"--{OPTION}={place.address or AUTO} waited {JOINING_SECONDS:.0f} s for the other processes, and not all "
            f"have joined; expected {place.size or 'all'} of them to run; start every rank, and see that each reaches "
            "HOST:PORT"
        )
        os._exit(MISTAKE)

    alone = threading.Timer(JOINING_SECONDS, end)
    alone.daemon = True
    alone.start()
    try:
        yield
    finally:
        alone.cancel()


class Stop(Protocol):
    """Whether a stop is requested; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether a stop is requested."""
        ...


class AnyStop(NamedTuple):
    """A stop that is set in all processes once it is set in any. `is_set` is a collective operation: all processes must
    call it equally often."""

    own: Stop

    def is_set(self) -> bool:
        """Whether a stop is requested in any process."""
        from jax.experimental import multihost_utils

        return bool(multihost_utils.process_allgather(np.asarray(self.own.is_set())).any())


def is_distributed() -> bool:
    """Whether several processes run this program. Does not start JAX's backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_coordinator() -> bool:
    """Whether this process, process 0, makes the decisions and writes the run's records."""
    return not is_distributed() or jax.process_index() == 0


def any_stop(stop: Stop) -> Stop:
    """A stop that all processes see at the same call of `is_set`, whichever of them was asked to stop."""
    return AnyStop(stop) if is_distributed() else stop


def broadcast(decide: Callable[[], Any]) -> Any:
    """Calls a function in process 0 only and returns its result, a JSON value, in every process.

    Raises:
      UserError: the function's own, raised in every process.
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


def check_same(what: str, own: str, mend: str) -> None:
    """Raises a `UserError`, in every process, unless `own`, a text that is as long in all, is the same.

    Args:
      what: what the text stands for, in words. mend: what is expected, and the fix.
    """
    if not is_distributed():
        return
    from jax.experimental import multihost_utils

    first, *others = np.asarray(multihost_utils.process_allgather(np.frombuffer(own.encode(), np.uint8)))
    if unlike := [rank for rank, other in enumerate(others, 1) if (other != first).any()]:
        raise UserError(f"process {unlike[0]} has {what} other than process 0's; expected {mend}")


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """Runs a block in the processes that JAX has joined, so that no process waits forever for one that failed.

    When a process that failed exits, it waits for the others no longer than `LEAVING_SECONDS`; JAX would wait for
    minutes. The others fail in their next computation or are ended by JAX: at once if process 0 is gone, else when the
    failed process's heartbeats have stopped.

    Raises:
      UserError: processes have different numbers of devices, or a computation over all processes failed.
    """
    if not is_distributed():
        yield
        return
    try:
        check_devices()
        yield
    except BaseException as error:
        failed = is_lost(error)
        leave_at_exit(MISTAKE if failed or isinstance(error, UserError | OSError | MemoryError) else 1)
        if not failed:
            raise
        raise UserError(
            f"computing with the other processes failed ({reason_of(error)[:200]}); expected every "
            "process until the run's end; the same commands go on from the last checkpoint"
        ) from error


def is_lost(error: BaseException) -> bool:
    """Whether an error is a failed computation, as raised when a process is lost. If JAX computes synchronously, Gloo's
    failure is a ValueError."""
    return isinstance(error, jax.errors.JaxRuntimeError) or (isinstance(error, ValueError) and "Gloo" in str(error))


def check_devices() -> None:
    """Raises a `UserError` if processes have different numbers of devices."""
    ranks = [one.process_index for one in jax.devices()]
    numbers = [ranks.count(rank) for rank in range(jax.process_count())]
    if len(set(numbers)) > 1:
        raise UserError(
            f"the processes have {', '.join(map(str, numbers))} devices; expected equally many; set "
            f"--config.devices to a multiple of {len(numbers)}, or make the machines alike"
        )


def leave_at_exit(status: int) -> None:
    """When this process exits, ends it together with the others if they shut down in time, else without them."""
    leaving = threading.Event()

    def shut_down() -> None:
        leaving.wait()
        with contextlib.suppress(Exception):  # the others may be gone
            jax.distributed.shutdown()

    def leave() -> None:
        leaving.set()
        together.join(LEAVING_SECONDS)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)

    # Started now: Python 3.12 starts no thread in a process that exits.
    together = threading.Thread(target=shut_down, daemon=True)
    together.start()
    atexit.register(leave)
