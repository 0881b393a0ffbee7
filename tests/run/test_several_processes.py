"""Several real processes on loopback train as one: they leave what one process with as many devices leaves, and a lost
one ends the others with one line, after which the same commands go on."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fdgjax.records import Workdir
from fdgjax.sealed import CHECKSUMS
from fdgjax.team import LOST
from tests.conftest import QUICK
from tests.runs import ROOT, assert_same_state, lines_written, perceptron, records_of, small

__all__ = ["perceptron"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("perceptron")]

ROUNDS, EVERY = 5, 2
SOON = 60.0
"""Seconds within which the loss of a process ends the others."""


def command(method: str, cache: Path, workdir: Path, devices: int, rounds: int, *more: str) -> list[str]:
    return [
        *(
            sys.executable,
            "-m",
            "fdgjax",
            "--with",
            "tests/with_perceptron.py",
            "train",
            f"--config=configs/{method}.py",
        ),
        *("--config.model.name=perceptron", f"--config.data.cache_dir={cache}", f"--config.rounds={rounds}"),
        *("--config.local_epochs=1", f"--config.eval_every={EVERY}", f"--config.checkpoint_every={EVERY}"),
        *("--config.writers=", f"--config.devices={devices}", f"--workdir={workdir}", *more),
    ]


def start(words: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", QUICK), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def start_together(words: list[str], size: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [start([*words, f"--distributed={address},{rank},{size}"]) for rank in range(size)]


def finish(processes: list[subprocess.Popen[str]]) -> None:
    try:
        said = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), said


def same(one: Path, other: Path, method: str, cache: Path, devices: int, rounds: int) -> None:
    assert records_of(one) == records_of(other)
    config = small(cache, method, rounds=rounds, eval_every=EVERY, checkpoint_every=EVERY, devices=devices)
    assert_same_state(one, other, config)


@pytest.mark.parametrize(("method", "size"), [("fedavg", 2), ("fdse", 2)])
def test_processes_leave_what_one_with_as_many_devices_leaves(
    method: str, size: int, cache: Path, tmp_path: Path
) -> None:
    words = (method, cache, tmp_path / "one", size, ROUNDS)
    finish([start(command(*words))])
    finish(start_together(command(method, cache, tmp_path / "several", size, ROUNDS), size))
    same(tmp_path / "one", tmp_path / "several", method, cache, size, ROUNDS)


@pytest.mark.parametrize(("method", "size"), [("fedavg", 2), ("hfedf", 3)])
def test_each_lost_process_ends_the_others_and_the_same_commands_go_on(
    method: str, size: int, cache: Path, tmp_path: Path
) -> None:
    rounds = 40
    words = command(method, cache, tmp_path / "killed", size, rounds)
    for victim in reversed(range(size)):
        begun = 1 + EVERY * (1 + 8 * (size - 1 - victim))
        processes = start_together(words, size)
        try:
            wait_for(partial(lines_written(begun), tmp_path / "killed"), processes)
            os.kill(processes[victim].pid, signal.SIGKILL)
            others = [process for rank, process in enumerate(processes) if rank != victim]
            said = [process.communicate(timeout=SOON)[1] for process in others]
        finally:
            for process in processes:
                process.kill()
        assert [process.returncode for process in others] == [LOST] * (size - 1), said
        for words_of_one in said:
            # Gloo writes there, too, and JAX's client, which notices a lost process 0 at the same moment.
            lines = [line for line in words_of_one.splitlines() if line.startswith("fdgjax:")]
            assert len(lines) == 1, said
            assert "Traceback" not in words_of_one
            assert re.match(rf"fdgjax: process \d of {size} was lost", lines[0])
        assert any(f"process {victim} of {size} was lost" in one for one in said)
        assert not Workdir(tmp_path / "killed").summary.exists()
        assert list((tmp_path / "killed/checkpoints").glob(f"*/{CHECKSUMS}")), "there is something to go on from"
    finish(start_together(words, size))
    finish(start_together(command(method, cache, tmp_path / "whole", size, rounds), size))
    same(tmp_path / "killed", tmp_path / "whole", method, cache, size, rounds)


def wait_for(moment: Callable[[], bool], processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + 300
    while not moment():
        assert all(process.poll() is None for process in processes), "the run ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.01)
