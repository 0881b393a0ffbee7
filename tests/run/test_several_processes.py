"""Several real processes on loopback train as one: they leave what one process with as many devices leaves, and a lost
one ends the others, after which the same commands go on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fdgjax.distributed import HEARTBEAT_SECONDS
from fdgjax.run.records import Workdir
from fdgjax.utils.checksums import CHECKSUMS
from fdgjax.utils.command import MISTAKE
from tests.conftest import QUICK
from tests.runs import ROOT, assert_same_state, lines_written, perceptron, records_of, small

__all__ = ["perceptron"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("perceptron")]

ROUNDS, LONG, EVERY = 5, 40, 2
SOON = 2.0 * HEARTBEAT_SECONDS
"""Seconds within which all processes have ended where one is lost, frozen or mistaken."""


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
    # As many threads in one process as in several, also where it may use a single core.
    threads = {"OMP_NUM_THREADS": "1", "NPROC": "2"}
    environment = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", QUICK), **threads}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def start_together(words: list[str], size: int) -> list[subprocess.Popen[str]]:
    address = free_address()
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
    words, chosen = (method, cache), "--config.selection=validation"
    finish([start(command(*words, tmp_path / "one", size, ROUNDS, chosen))])
    finish(start_together(command(*words, tmp_path / "several", size, ROUNDS, chosen), size))
    same(tmp_path / "one", tmp_path / "several", method, cache, size, ROUNDS)


@pytest.mark.parametrize(("method", "size"), [("fedavg", 2), ("hfedf", 3)])
def test_each_lost_process_ends_the_others_and_the_same_commands_go_on(
    method: str, size: int, cache: Path, tmp_path: Path
) -> None:
    words = command(method, cache, tmp_path / "killed", size, LONG)
    for victim in reversed(range(size)):
        for status, said in after_signal(words, size, victim, signal.SIGKILL):
            assert status != 0, said
            assert "Traceback" not in said, "the message is ours or that of JAX's runtime"
        assert not Workdir(tmp_path / "killed").summary.exists()
        assert list((tmp_path / "killed/checkpoints").glob(f"*/{CHECKSUMS}")), "there is something to go on from"
    finish(start_together(words, size))
    finish(start_together(command(method, cache, tmp_path / "whole", size, LONG), size))
    same(tmp_path / "killed", tmp_path / "whole", method, cache, size, LONG)


def test_a_stop_asked_of_any_saves_and_a_frozen_process_ends_the_others(cache: Path, tmp_path: Path) -> None:
    disturbed = tmp_path / "disturbed"
    words = command("fedavg", cache, disturbed, 2, LONG)
    for victim in (1, 0):
        for status, said in after_signal(words, 2, victim, signal.SIGTERM):
            assert status == 128 + signal.SIGTERM, said
        saved = max(int(one.parent.name) for one in (disturbed / "checkpoints").glob(f"*/{CHECKSUMS}"))
        assert lines_written(saved)(disturbed)
        assert not lines_written(saved + 1)(disturbed), "the last round that was written is saved"
        for status, said in after_signal(words, 2, victim, signal.SIGSTOP):
            assert status != 0, said
    finish(start_together(words, 2))
    finish(start_together(command("fedavg", cache, tmp_path / "whole", 2, LONG), 2))
    same(disturbed, tmp_path / "whole", "fedavg", cache, 2, LONG)


def test_a_mistake_is_the_same_line_in_every_process(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").touch()
    processes = start_together(command("fedavg", cache, tmp_path / "other", 2, ROUNDS), 2)
    said = [process.communicate(timeout=SOON)[1] for process in processes]
    assert [process.returncode for process in processes] == [MISTAKE] * 2, said
    lines = [[line for line in one.splitlines() if line.startswith("fdgjax:")] for one in said]
    assert len(lines[0]) == 1
    assert lines[0] == lines[1]
    assert "holds no config.json" in lines[0][0]


def test_a_process_whose_others_never_come_says_so_in_one_line(cache: Path, tmp_path: Path) -> None:
    patient = tmp_path / "patient.py"
    patient.write_text("import fdgjax.distributed\n\nfdgjax.distributed.JOINING_SECONDS = 3.0\n")
    words = command("fedavg", cache, tmp_path / "run", 2, ROUNDS)
    process = start([*words[:3], "--with", str(patient), *words[3:], f"--distributed={free_address()},0,2"])
    said = process.communicate(timeout=300)[1]
    assert process.returncode == MISTAKE, said
    (line,) = [line for line in said.splitlines() if line.startswith("fdgjax:")]
    assert "waited 3 s for the other processes, and not all have joined; expected 2 of them" in line
    assert "@ " not in said, "no stack trace of JAX's"


def test_other_data_on_a_host_is_the_same_line_in_every_process(cache: Path, tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"{rank}").mkdir()
        for name in ("a", "b", "c"):
            inputs = np.random.default_rng(rank * (name == "b")).normal(size=(20, 5)).astype(np.float32)
            np.savez(tmp_path / f"{rank}/{name}.npz", inputs=inputs, labels=np.arange(20) % 2)
    words = ["fdgjax", "train", "--config=fedavg:arrays", "--config.model.name=linear", "--config.data.target=c"]
    words = [sys.executable, "-m", *words, "--config.devices=2", "--config.writers=", f"--workdir={tmp_path / 'run'}"]
    address = free_address()
    each = [[*words, f"--config.data.dir={tmp_path / f'{rank}'}"] for rank in range(2)]
    processes = [start([*own, f"--distributed={address},{rank},2"]) for rank, own in enumerate(each)]
    said = [process.communicate(timeout=SOON)[1] for process in processes]
    assert [process.returncode for process in processes] == [MISTAKE] * 2, said
    for one in said:
        assert "fdgjax: process 1 has data other than process 0's; expected the same files on every host" in one


def test_another_config_is_the_same_line_in_every_process(cache: Path, tmp_path: Path) -> None:
    words, address = command("fedavg", cache, tmp_path / "run", 2, ROUNDS), free_address()
    each = [words, [*words[:-1], "--config.method.client_learning_rate=0.1", words[-1]]]
    processes = [start([*own, f"--distributed={address},{rank},2"]) for rank, own in enumerate(each)]
    said = [process.communicate(timeout=SOON)[1] for process in processes]
    assert [process.returncode for process in processes] == [MISTAKE] * 2, said
    for one in said:
        assert "fdgjax: process 1 has a config or library versions other than process 0's; expected the same com" in one


def after_signal(words: list[str], size: int, victim: int, number: int) -> list[tuple[int, str]]:
    """Status and last words of all processes that end when one of them gets a signal after some more rounds; it itself
    is among them where it was asked to stop."""
    workdir = Path(words[-1].removeprefix("--workdir="))
    before = workdir.joinpath("metrics.jsonl").read_text().count("\n") if workdir.exists() else 0
    processes = start_together(words, size)
    try:
        wait_for(partial(lines_written(before + EVERY + 1), workdir), processes)
        os.kill(processes[victim].pid, number)
        ending = [one for rank, one in enumerate(processes) if rank != victim or number == signal.SIGTERM]
        said = [process.communicate(timeout=SOON)[1] for process in ending]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, one) for process, one in zip(ending, said, strict=True)]


def wait_for(moment: Callable[[], bool], processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + 300
    while not moment():
        assert all(process.poll() is None for process in processes), "the run ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.01)
