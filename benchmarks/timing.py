"""The clocks, and the loop that measures rounds."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State")
PROCESSES = Path("/proc")


def processor_seconds() -> float:
    """Processor time of this process and, on Linux, of all below it: those that still run, and what they waited for."""
    return time.process_time() + sum(map(_seconds, _descendants(os.getpid())))


def _descendants(root: int) -> list[list[str]]:
    """Of each process below `root` the fields of `/proc/PID/stat` that follow its name."""
    stats: dict[int, list[str]] = {}
    for path in PROCESSES.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended meanwhile
            continue
        # A name may hold spaces and brackets.
        stats[int(path.parent.name)] = text.rpartition(")")[2].split()
    below = new = {root}
    while new:
        new = {number for number, stat in stats.items() if int(stat[1]) in new}
        below = below | new
    return [stats[number] for number in below - {root}]


def _seconds(stat: list[str]) -> float:
    """User and system time, and that of its children that have ended."""
    return sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": processor_seconds}
"""What a round's seconds are. Other work on a machine disturbs processor time less, but threads that wait for one
another may use it up, so it is compared between processes on one core each."""


class Timed(NamedTuple, Generic[State]):
    """The state after all rounds, the seconds of each but the first, and the first's in wall time."""

    state: State
    seconds: list[float]
    first: float


def timed(one_round: Callable[[State], State], state: State, rounds: int, clock: str) -> Timed[State]:
    """Runs one round that is not timed by the clock, as it may compile, and `rounds` that are."""
    now, seconds = CLOCKS[clock], list[float]()
    begin = time.perf_counter()
    state = one_round(state)
    first = time.perf_counter() - begin
    for _ in range(rounds):
        begin = now()
        state = one_round(state)
        seconds.append(now() - begin)
    return Timed(state, seconds, first)
