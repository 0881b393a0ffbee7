"""A run that is stopped or killed at any moment ends as if nothing had happened, bit for bit, and loses no record."""

import io
import shutil
import signal
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from fdgjax.experiments import build
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config, run_experiment
from tests.runs import (
    Process,
    StopAfter,
    assert_same_run,
    built_once,
    checkpoint_half_written,
    lines_written,
    never,
    perceptron,
    small,
)

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hfedf", "local"])
def test_interrupted_and_resumed_equals_undisturbed(method: str, cache: Path, tmp_path: Path) -> None:
    # Two methods for all: that every method's state is restored whole is a law of tests/engine/test_round.py.
    # Partial participation and an odd number of rounds, so that every stream and a partial checkpoint are exercised.
    config = small(cache, method, rounds=5, clients_per_round=2)
    run_config(config, tmp_path / "undisturbed", Console(), never())
    # The event is looked at before and after compiling, then up to thrice a round; the exact round does not matter.
    with pytest.raises(Interrupted, match=r"the same command continues"):
        run_config(config, tmp_path / "resumed", Console(), StopAfter(4))
    assert not (tmp_path / "resumed/summary.json").exists()
    run_config(config, tmp_path / "resumed", Console(), never())
    assert_same_run(tmp_path / "undisturbed", tmp_path / "resumed", config)


def test_records_without_a_checkpoint_stay(cache: Path, tmp_path: Path) -> None:
    """Training begins again, as it must, but says so and writes over nothing."""
    config = small(cache)
    run_config(config, tmp_path / "run", Console(), never())
    shutil.rmtree(tmp_path / "run/checkpoints")
    (tmp_path / "run/summary.json").unlink()
    before, screen = (tmp_path / "run/metrics.jsonl").read_text(), io.StringIO()
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "run", Console(RichConsole(file=screen, width=500)), StopAfter(2))
    kept = tmp_path / "run/metrics_4.jsonl"
    assert (
        f"no checkpoint is left of 4 rounds, whose records stay in {kept}: training begins again" in screen.getvalue()
    )
    assert kept.read_text() == before


@pytest.mark.parametrize("question", range(2, 5))
def test_a_stop_at_any_moment_leaves_the_last_round_saved(question: int, cache: Path, tmp_path: Path) -> None:
    """The run asks again and again whether it shall stop; the first yes may be to any of them."""
    experiment = build(small(cache, checkpoint_every=4))
    with pytest.raises(Interrupted, match=r"stopped after round (\d) of 4") as news:
        run_experiment(experiment, tmp_path, Console(), StopAfter(question), [lambda progress: None])
    done = int(str(news.value).split()[3])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [str(done)] * (done > 0)


def test_a_stop_while_compiling_is_honoured_before_the_first_round(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="stopped after round 0 of 4"):
        run_config(small(cache), tmp_path / "run", Console(), StopAfter(1))
    assert (tmp_path / "run/metrics.jsonl").read_text() == ""


@pytest.mark.slow
def test_killed_and_resumed_equals_undisturbed(cache: Path, tmp_path: Path) -> None:
    # Clients with models and optimisers of their own, on two devices.
    method, rounds, devices = "local", 30, "--config.devices=2"
    Process(tmp_path / "undisturbed", cache, method, rounds, devices).finish()
    disturbed = Process(tmp_path / "disturbed", cache, method, rounds, devices)
    for moment, number in (
        (lines_written(1), signal.SIGKILL),
        (lines_written(5), signal.SIGTERM),
        (checkpoint_half_written(9), signal.SIGKILL),
        (lines_written(20), signal.SIGINT),
    ):
        status = disturbed.signal_when(moment, number)
        if number == signal.SIGKILL:
            assert status == -number
        else:
            assert status == 128 + number
            lines = (disturbed.workdir / "metrics.jsonl").read_text().count("\n")
            saved = [int(p.name) for p in (disturbed.workdir / "checkpoints").iterdir() if p.name.isdigit()]
            assert max(saved) == lines, "the last round done was not saved"
    assert disturbed.signal_when(lines_written(25), signal.SIGINT, times=2) == 128 + signal.SIGINT
    disturbed.finish()
    config = small(cache, method, "digits_cnn", rounds=rounds, devices=2)
    assert_same_run(tmp_path / "undisturbed", tmp_path / "disturbed", config)
