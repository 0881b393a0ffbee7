"""A sweep's work shared by several processes of one machine."""

import os
import subprocess
import threading
from collections.abc import Sequence

POLL_SECONDS = 0.2
STDIN = 0


def run_workers(command: Sequence[str], jobs: int, stop: threading.Event) -> list[int]:
    """Runs `command` in `jobs` processes until all have ended, and returns their exit statuses.

    They save their state and stop when their standard input ends (see `stop_with_parent`): once `stop` is set, and
    also where this process dies.
    """
    # Each would otherwise take most of an accelerator's memory at its start.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) for _ in range(jobs)]
    try:
        while any(worker.poll() is None for worker in workers) and not stop.wait(POLL_SECONDS):
            pass
    finally:
        for worker in workers:
            if worker.stdin:
                worker.stdin.close()
    return [worker.wait() for worker in workers]


def stop_with_parent(stop: threading.Event) -> None:
    """Sets `stop` once the standard input ends.

    Not a signal: a scheduler that signals all processes would make it the second, which ends a run at once.
    """

    def watch() -> None:
        # Not sys.stdin, whose lock Python would want at its own end.
        while os.read(STDIN, 1024):
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
