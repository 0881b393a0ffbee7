"""The real program in processes of its own, forked from one that has imported it but never started JAX."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT = 300.0
"""Seconds after which a process hangs."""
MISTAKE = 2
KILLED, HANGS = -int(signal.SIGKILL), 1000


class Ended(NamedTuple):
    """How a process ended.

    status: its exit status, minus the signal's number, or `HANGS`. text: all that it printed.
    """

    status: int
    text: str
    seconds: float

    @property
    def complaint(self) -> str:
        """What is wrong with how it ended; '' where it did its work or refused in one line."""
        errors = [line for line in self.text.splitlines() if line.startswith("fdgjax: ")]
        if "Traceback" in self.text:
            return f"traceback: {self.text.strip().splitlines()[-1]}"
        if self.status == HANGS:
            return "hangs"
        if self.status not in (0, 2, KILLED):
            return f"status {self.status}"
        if self.status == 2 and len(errors) != 1:
            return f"{len(errors)} lines of error"
        return ""


def start(work: Callable[[], int], log: Path) -> int:
    """Forks a process that does the work and ends with the status it returns; its output goes to `log`."""
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        return child
    status = 1
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(handle, stream)
        status = work()
    except BaseException:  # this process ends here, whatever it is
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def over(child: int) -> bool:
    """Whether a process has ended, which `end` is still to be told."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end(child: int, log: Path, begin: float, kill_at: float = LIMIT) -> Ended:
    """Waits for a process, which is killed `kill_at` seconds after `begin`."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return Ended(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), time.monotonic() - begin)
        if time.monotonic() - begin > kill_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = HANGS if kill_at >= LIMIT else KILLED
            return Ended(status, log.read_text(errors="replace"), time.monotonic() - begin)
        time.sleep(0.002)


def run(work: Callable[[], int], log: Path, kill_at: float = LIMIT) -> Ended:
    """Does the work in a process of its own."""
    begin = time.monotonic()
    return end(start(work, log), log, begin, kill_at)


def trains(arguments: Sequence[str]) -> Callable[[], int]:
    """The work of `python -m fdgjax.main ARGUMENTS`."""
    from fdgjax.cli.train import main

    return lambda: main(["fdgjax", *arguments])
