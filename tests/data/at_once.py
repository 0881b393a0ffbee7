"""Processes that do the same at the same moment."""

import subprocess
import sys


def answers_at_once(script: str, processes: int) -> list[tuple[str, str]]:
    """What processes of a script print, which says `ready` and waits for a character until all of them have.

    Each has to end well.
    """
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("x")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes, answers
    return answers
