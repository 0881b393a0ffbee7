"""A command's work shared by several processes of one machine, and how it ends: done, stopped, or out of time."""

import argparse
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fdgjax.run.console import Console, silent_console
from fdgjax.run.runner import Interrupted
from fdgjax.sweeps.status import refuse_without_locks
from fdgjax.utils.signals import save_on_signals

POLL_SECONDS = 0.2
STDIN = 0
OUT_OF_TIME = 3
"""The exit status of a command whose time budget is spent."""


class Job(NamedTuple):
    """What a command does.

    begin: called once, before all work. work: what each process does until nothing is left for it or its event is set.
    end: called once, after all work, with whether it was stopped; returns the exit status. `work` and `end` raise
    `Interrupted` if they were stopped before all was done.
    """

    begin: Callable[[], object]
    work: Callable[[Console, threading.Event], object]
    end: Callable[[Console, bool], int]


def conduct(job: Job, args: argparse.Namespace, command: Sequence[str]) -> int:
    """Does a job, in this process or in workers.

    Args:
      job: what to do.
      args: `out`, `jobs`, `time_budget` and `worker` of `fdgjax.sweeps.options.add_common`.
      command: the subcommand of fdgjax, with its arguments, with which workers are started.

    Returns:
      The job's exit status; 128 + signal number when stopped by one, and `OUT_OF_TIME` when time ran out.

    Raises:
      UserError: as the job does, or several workers on a file system without locks.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    console, stop = Console(), threading.Event()
    limit_time(stop, args.time_budget)
    # Ctrl-C in a terminal reaches the workers, too, of which one line is enough.
    with save_on_signals(stop, silent_console().say if args.worker else console.say) as received:
        try:
            if args.worker:
                stop_with_parent(stop)
                job.work(console, stop)
                return 0
            job.begin()
            if args.jobs == 1:
                job.work(console, stop)
            else:
                refuse_without_locks(args.out)
                statuses = run_workers([sys.executable, "-m", "fdgjax", *command, "--worker"], args.jobs, stop)
                if any(statuses) and not stop.is_set():
                    console.say(f"processes ended with status {', '.join(map(str, statuses))}")
            return job.end(console, stop.is_set())
        except Interrupted as news:
            if not args.worker:
                console.say(str(news))
            return 128 + received[0] if received else OUT_OF_TIME


def limit_time(stop: threading.Event, seconds: float) -> None:
    """Sets `stop` after `seconds`; 0 for never."""
    if seconds:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()


def run_workers(command: Sequence[str], jobs: int, stop: threading.Event) -> list[int]:
    """Runs `command` in `jobs` processes until all have ended, and returns their exit statuses.

    They save their state and stop when their standard input ends (see `stop_with_parent`): once `stop` is set, and also
    if this process dies.
    """
    # Each worker would otherwise take most of an accelerator's memory at its start.
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

    The parent sends no signal instead: after a scheduler's signal to all processes it would be the second one, which
    ends a run at once.
    """

    def watch() -> None:
        # Not sys.stdin: the interpreter needs its lock at exit.
        while os.read(STDIN, 1024):
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
