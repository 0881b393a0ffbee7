"""Small runs of the real program, stopped and killed at chosen moments, and what they must have left."""

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import pytest
from ml_collections import ConfigDict

from fdgjax.config import Config, make_config, read_config
from fdgjax.engine import State
from fdgjax.experiments import build
from fdgjax.models import MODELS, UNITS, Backbone, Unit
from fdgjax.models.stages import Passage
from fdgjax.run.compilation import state_shapes
from fdgjax.run.records import TIMINGS, Checkpoint, newest_checkpoint
from fdgjax.utils.checksums import read_checked_json

ROOT = Path(__file__).resolve().parents[1]


class Perceptron(nn.Module):
    """A model that compiles in a moment: a run's records do not depend on what it trains."""

    classes: int
    width: float = 1.0
    unit: Unit = UNITS["plain"]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = self.unit(nn.Dense, 16, name="linear_1")(x.reshape(len(x), -1), train=train)
        x = Passage("features")(x)
        self.sow("intermediates", "features", x)
        return nn.Dense(self.classes, name="linear_2")(x)


@pytest.fixture(scope="module")
def perceptron() -> Iterator[None]:
    """The model of `small` runs is in the registry; imported by the modules that run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "perceptron", Backbone(Perceptron, "of the tests"))
        yield


@pytest.fixture(scope="module")
def built_once() -> Iterator[None]:
    """Runs of the same config share an experiment, whose programs are traced and lowered once; imported by the modules
    with many runs. `make slow` has the same laws between processes, each of which builds its own."""
    once = functools.cache(build)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("fdgjax.run.runner", "fdgjax.run.extend_rounds", "fdgjax.run.reopen", __name__):
            patch.setattr(f"{module}.build", once)
        yield


def small(cache: Path, method: str = "fedavg", model: str = "perceptron", **changes: Any) -> Config:
    config: ConfigDict = make_config(method, "rotated_digits")
    config.model.name = model
    config.update({"rounds": 4, "local_epochs": 1, "eval_every": 2, "checkpoint_every": 2, "devices": 1, **changes})
    config.data.cache_dir = str(cache)
    return read_config(config)


class StopAfter(threading.Event):
    """An event that is set once it has been looked at a given number of times: an interrupt at a known moment."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_set(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def never() -> threading.Event:
    return threading.Event()


def records_of(path: Path) -> dict[str, Any]:
    """What a run or a seed of it wrote, by file; without timings, checkpoints and TensorBoard's own format."""
    found: dict[str, Any] = {}
    for name in ("config.json", "summary.json"):
        for file in path.rglob(name):
            content = read_checked_json(file)
            found[str(file.relative_to(path))] = {key: content[key] for key in content if key not in TIMINGS}
    return found | {str(file.relative_to(path)): file.read_text() for file in path.rglob("metrics.jsonl")}


def final_state(path: Path, rounds: int, like: State) -> State:
    state: State = final_checkpoint(path, rounds, like).state
    return state


def final_checkpoint(path: Path, rounds: int, like: State) -> Checkpoint:
    restored = newest_checkpoint(path / "checkpoints", like, pytest.fail)
    assert restored is not None
    assert (jax.device_get(restored.state.round) == rounds).all()
    return restored


def assert_same_run(one: Path, other: Path, config: Config) -> None:
    assert records_of(one) == records_of(other)
    assert_same_state(one, other, config)


def assert_same_state(one: Path, other: Path, config: Config) -> None:
    """The newest states are the same, and those of the selected round."""
    like = state_shapes(build(config))
    left, right = (final_checkpoint(path, config.rounds, like) for path in (one, other))
    chex.assert_trees_all_equal((left.state, left.selected), (right.state, right.selected))


class Process:
    """The command line on a real process, killed or signalled at chosen moments."""

    def __init__(self, workdir: Path, cache: Path, method: str, rounds: int, *more: str) -> None:
        self.workdir = workdir
        self.command = [
            *(sys.executable, "-m", "fdgjax.main", f"--config=configs/{method}.py", f"--workdir={workdir}"),
            *(f"--config.data.cache_dir={cache}", f"--config.rounds={rounds}", "--config.local_epochs=1"),
            *("--config.checkpoint_every=3", "--config.eval_every=7", *more),
        ]

    def finish(self) -> None:
        done = subprocess.run(self.command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def signal_when(self, moment: Callable[[Path], bool], number: int, times: int = 1) -> int:
        process = subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 120
            while not moment(self.workdir):
                assert process.poll() is None, "the run ended before the moment came"
                assert time.monotonic() < deadline, "the moment never came"
                time.sleep(0.001)
            for _ in range(times):
                os.kill(process.pid, number)
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
        assert b"Traceback" not in output
        assert not (self.workdir / "summary.json").exists(), "the run was over before the signal"
        return process.returncode


def lines_written(many: int) -> Callable[[Path], bool]:
    def moment(workdir: Path) -> bool:
        metrics = workdir / "metrics.jsonl"
        return metrics.exists() and metrics.read_text().count("\n") >= many

    return moment


def checkpoint_half_written(after: int) -> Callable[[Path], bool]:
    def moment(workdir: Path) -> bool:
        unfinished = workdir.glob("checkpoints/*.orbax-checkpoint-tmp*")
        return any(int(path.name.split(".")[0]) > after for path in unfinished)

    return moment
