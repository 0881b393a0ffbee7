"""A device computes a round while the host reads, checks and writes the figures of the one before it."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.config import Config
from fdgjax.engine import State
from fdgjax.experiments import Experiment, build
from fdgjax.loggers import Log
from fdgjax.run.compilation import compile_ahead
from fdgjax.run.console import Console
from fdgjax.run.loop import Observer, Progress, round_record
from fdgjax.run.records import Checkpoints, History, open_checkpoints, open_log
from fdgjax.run.runner import Interrupted, run_experiment
from tests.runs import StopAfter, never, perceptron, small
from tests.toys import round_info

__all__ = ["perceptron"]


class Watched:
    """A run that notes in `events` what it does, in order."""

    def __init__(self, patch: pytest.MonkeyPatch, path: Path) -> None:
        self.events: list[str] = []
        self.path = path
        patch.setattr("fdgjax.run.runner.compile_ahead", self.compiled)
        patch.setattr("fdgjax.run.multihost.open_log", self.log)
        patch.setattr("fdgjax.run.outputs.open_checkpoints", self.checkpoints)

    def compiled(self, experiment: Experiment, state: State) -> Any:
        ready, memory = compile_ahead(experiment, state)

        def start(state: State, train: Any) -> Any:
            self.events.append("start")
            return ready.round(state, train)

        return ready._replace(round=start), memory

    def log(self, *args: Any) -> Log:
        log = open_log(*args)

        def write(record: Any) -> None:
            self.events.append(f"write {record['round']}")
            log.write(record)

        return log._replace(write=write)

    def checkpoints(self, *args: Any) -> Checkpoints:
        found = open_checkpoints(*args)

        def save(round_: int, state: Any, history: History, selected: Any = None) -> None:
            self.events.append(f"save {round_}")
            found.save(round_, state, history, selected)

        return found._replace(save=save)

    def run(self, config: Config, *observers: Observer, stop: Any = None) -> str:
        with contextlib.suppress(Interrupted):
            run_experiment(build(config), self.path, Console(), stop or never(), observers)
        return ", ".join(self.events)


def test_a_client_that_trained_on_nothing_has_no_loss() -> None:
    """As where none of its pseudo-labels is sure enough."""
    losses = [(np.array([np.nan, 2.0, 4.0]), 3.0), (np.full(3, np.nan), None)]
    for loss, mean in losses:
        record = round_record(1, round_info(range(3), loss=loss.astype(np.float32)))
        assert record["train_loss"] == mean
        assert record["client_loss"][0] is None


@pytest.mark.slow
def test_a_round_begins_before_the_one_before_it_is_written(
    perceptron: None, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(cache, checkpoint_every=3)
    done = Watched(monkeypatch, tmp_path / "alone").run(config)
    # A checkpoint needs the state, which the next round would use up.
    assert done == "start, start, write 1, start, write 2, write 3, save 3, start, write 4, save 4"
    told: list[Progress] = []
    done = Watched(monkeypatch, tmp_path / "heard").run(config, told.append)
    assert done == "start, write 1, start, write 2, start, write 3, save 3, start, write 4, save 4"
    assert [one.number for one in told] == [1, 2, 3, 4]
    assert all(one.state is not None for one in told)
    one, other = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("alone", "heard"))
    assert one == other


@pytest.mark.slow
def test_a_stop_saves_every_round_that_began(
    perceptron: None, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looked at before and after compiling, and after the start of rounds 1 and 2, when it is set: 2 is the last.
    done = Watched(monkeypatch, tmp_path / "run").run(small(cache, checkpoint_every=4), stop=StopAfter(3))
    assert done == "start, start, write 1, write 2, save 2"
