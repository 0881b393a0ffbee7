"""A process that is kept running by another and ends with it."""

import logging
import os
import subprocess
import time
from collections.abc import Callable, Sequence

LONGEST_PAUSE = 60.0
"""Seconds before a program that ends again and again is started once more."""


def keep_running(program: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> None:
    """Starts a program, and again whenever it ends: a second later, and twice as late each time that it ran for less
    than `LONGEST_PAUSE`.

    Its standard input is a pipe to which nobody writes: it closes when this process ends, see `end_with_parent`.
    """
    wait = 0.5
    while True:
        begin = time.monotonic()
        with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
            status = process.wait()
        wait = 1.0 if time.monotonic() - begin > LONGEST_PAUSE else min(2 * wait, LONGEST_PAUSE)
        logging.getLogger("flwr").warning("%s ended (status %d); started again in %.0f s", program[2:3], status, wait)
        sleep(wait)


def end_with_parent() -> None:
    """Ends this process at once when its standard input closes: when the process that holds the other end of the pipe
    ends, however it does."""
    while os.read(0, 1):
        pass
    os._exit(0)
