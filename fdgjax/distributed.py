"""`--distributed`: this process as one of several, on one machine or on many, that run one program."""

import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax

from fdgjax.errors import UserError

OPTION, AUTO, BY_HAND = "distributed", "auto", "HOST:PORT,RANK,COUNT"
JOINING_SECONDS = 300.0
"""How long processes wait for one another at the start."""
EXPECTED = f"expected --{OPTION}={AUTO}, or --{OPTION}={BY_HAND} such as 10.0.0.1:9876,0,2"


class Place(NamedTuple):
    """A process's place among several; all None where JAX finds it.

    address: `HOST:PORT`, where process 0 listens. rank: this one's number. size: the number of processes.
    """

    address: str | None = None
    rank: int | None = None
    size: int | None = None


def split_off(argv: Sequence[str]) -> tuple[list[str], Place | None]:
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


def read_place(text: str) -> Place:
    """A value of `--distributed`; raises a `UserError` for one that is none."""
    if text == AUTO:
        return Place()
    address, *numbers = text.split(",")
    host, _, port = address.rpartition(":")
    if len(numbers) != 2 or not all(one.isdecimal() for one in (port, *numbers)) or not host:
        raise UserError(f"--{OPTION} got '{text}'; {EXPECTED}")
    rank, count = map(int, numbers)
    if rank >= count or not 0 < int(port) < 2**16:
        raise UserError(
            f"--{OPTION} got '{text}'; expected a port below 65536 and RANK from 0 to COUNT - 1; {EXPECTED}"
        )
    return Place(address, rank, count)


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


def join(place: Place) -> None:
    """Joins this process to the others, before JAX looks for devices; returns once all have come.

    Raises:
      UserError: no cluster that JAX knows, a process 0 that cannot be reached, or not all came within five minutes.
    """
    # The first signal is the run's own request to save and stop (`fdgjax.train`), which the service would take over.
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if place.address is not None and place.rank:
        await_process_0(place.address)  # in vain, JAX would end the process with a stack trace
    try:
        if place.address is None:
            jax.distributed.initialize()
        else:
            jax.distributed.initialize(place.address, place.size, place.rank, cluster_detection_method="deactivate")
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--{OPTION}={place.address or AUTO} joined no other processes ({reason}); {EXPECTED}, with a process 0 "
            "that all can reach and every process started within five minutes"
        ) from error
