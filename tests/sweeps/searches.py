"""Searches whose runs are pretended: their accuracies follow from their hyperparameters."""

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as RichConsole

from fdgjax.cli.search import parser, read_search
from fdgjax.config import Config
from fdgjax.run.console import Console
from fdgjax.run.loop import Progress
from fdgjax.run.runner import Interrupted
from fdgjax.sweeps.space import Search
from fdgjax.utils.errors import UserError
from tests.runs import StopAfter

pytest.importorskip("optuna")

from fdgjax.sweeps.trials import open_study, work_on_trials

ROUNDS = 5


def told_of(out: Path) -> list[tuple[Any, ...]]:
    """What a search has come to: each trial's values, outcome, objective, and what it reported."""
    made = open_study(search_of(out))
    return [(one.params, one.state.name, one.value, one.intermediate_values) for one in made.get_trials()]


def search_of(out: Path, *more: str) -> Search:
    words = ["fedprox", *more, "--out", str(out), "--tune", "mu", "server_learning_rate"]
    return read_search(parser().parse_args(words if "--set" in more else [*words, "--set", f"rounds={ROUNDS}"]))


def pretended(config: Config, path: Path, console: Any, stop: threading.Event, observers: Any) -> dict:
    """A run whose accuracies follow from its hyperparameters; it goes on at the round that it had reached."""
    file = path / "done"
    path.mkdir(exist_ok=True)
    for done in range(int(file.read_text()) if file.exists() else 0, config.rounds):
        if stop.is_set():
            raise Interrupted("stopped")
        if config.method.mu == 0.1 and done == 3:
            raise UserError("diverged")
        record = {"round": done + 1, "id_accuracy": accuracy(config, done + 1), "ood_accuracy": of_target(config)}
        record["id_log_loss"] = 2 - record["id_accuracy"]
        for one in observers:
            one(Progress(done + 1, [record], None, 1.0))
        file.write_text(str(done + 1))
    return record


def accuracy(config: Config, round_: int) -> float:
    return round_ / 10 + config.method.server_learning_rate / 100 + config.method.mu


def of_target(config: Config) -> float:
    return 0.9


@pytest.fixture
def pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdgjax.sweeps.trials.run_experiment", pretended)
    monkeypatch.setattr("fdgjax.sweeps.trials.build", lambda config: config)
    for idle in ("prepare_cpu", "remember_compilations"):
        monkeypatch.setattr(f"fdgjax.sweeps.trials.{idle}", lambda *_: None)
    monkeypatch.setattr("fdgjax.sweeps.trials.jax.clear_caches", lambda: None)


def finish(search: Search, *looks: int) -> list[str]:
    """Runs the search, stopped after so many looks at `stop` first, and returns what was said."""
    screen = io.StringIO()
    console = Console(RichConsole(file=screen, width=200))
    for many in looks:
        with pytest.raises(Interrupted):
            work_on_trials(search, console, StopAfter(many))
    work_on_trials(search, console, threading.Event())
    return screen.getvalue().splitlines()
