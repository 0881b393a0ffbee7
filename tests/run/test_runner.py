"""A run leaves its records, each protocol its figures, and what is wrong is one line."""

import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import pytest
from rich.console import Console as RichConsole

from fdgjax.config import Config
from fdgjax.evaluation import Metrics
from fdgjax.evaluation.statistics import wilson
from fdgjax.experiments import build
from fdgjax.methods import METHODS
from fdgjax.run import runner
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import Console
from fdgjax.run.records import Workdir, open_workdir, read_summary
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.checksums import read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from tests.loggers.trackers import fake_mlflow, fake_wandb
from tests.runs import (
    StopAfter,
    built_once,
    final_state,
    never,
    perceptron,
    small,
)

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")

SUMMARY_KEYS = {
    *("method", "dataset", "target", "seed", "rounds", "id_accuracy", "ood_accuracy", "per_domain_accuracy"),
    *("worst_domain_accuracy", "ece", "parameters", "bytes_up_per_round", "bytes_down_per_round"),
    *(
        "images_per_second",
        "wall_seconds",
        "seconds_per_round",
        "predicted_memory_bytes",
        "peak_memory_bytes",
        "selection",
    ),
    *("model", "flops_per_image"),
}


class Finished(NamedTuple):
    """A run that is over, what it said, and what it returned."""

    path: Path
    config: Config
    screen: str
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def finished(perceptron: None, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run for all tests that only look at what it left; hardly any memory was free."""
    path, config, screen = tmp_path_factory.mktemp("finished") / "run", small(cache), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fdgjax.run.runner.free_bytes", lambda: 1000)
        summary = run_config(config, path, Console(RichConsole(file=screen, width=100)), never())
    return Finished(path, config, screen.getvalue(), summary)


def times_written(path: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in path.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_a_run_leaves_its_records(finished: Finished) -> None:
    path, config, _, summary = finished
    assert set(summary) >= SUMMARY_KEYS
    assert summary == read_summary(Workdir(path))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert ["id_accuracy" in line for line in lines] == [False, True, False, True]
    assert sum(lines[0]["coefficients/weights"]) == pytest.approx(1)
    written = read_checked_json(path / "config.json")
    assert written["config"]["seed"] == config.seed
    assert written["versions"]["jax"] == jax.__version__
    assert list((path / "tensorboard").glob("events.*"))
    assert set(summary["selection"]) == {"used", "last", "validation", "validation_by_size"}
    assert summary["worst_domain_accuracy"] == min(summary["per_domain_accuracy"].values())
    assert summary["bytes_up_per_round"] == 5 * 4 * summary["parameters"]


@pytest.mark.slow
def test_a_streaming_run_stopped_and_continued_is_the_run_without_streaming(finished: Finished, tmp_path: Path) -> None:
    config = dataclasses.replace(finished.config, data=dataclasses.replace(finished.config.data, streaming=True))
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "run", Console(), StopAfter(4))
    run_config(config, tmp_path / "run", Console(), never())
    assert (tmp_path / "run/metrics.jsonl").read_text() == (finished.path / "metrics.jsonl").read_text()
    like = state_shapes(build(config))
    chex.assert_trees_all_equal(*(final_state(path, 4, like) for path in (tmp_path / "run", finished.path)))


@pytest.mark.slow
def test_a_run_that_goes_on_with_other_programs_says_so(cache: Path, tmp_path: Path) -> None:
    config, path, screen = small(cache), tmp_path / "run", io.StringIO()
    console = Console(RichConsole(file=screen, width=200))
    with pytest.raises(Interrupted):
        run_config(config, path, console, StopAfter(2))
    content = read_checked_json(path / "config.json")
    write_checked_json(path / "config.json", content | {"versions": content["versions"] | {"jax": "0.1.2"}})
    for _ in range(2):  # said by the run that goes on, and not again by one that is over
        run_config(config, path, console, never())
        assert screen.getvalue().count("the run began with jax 0.1.2 and goes on with jax") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "selection", "clients", "absent", "shown"),
    [
        (
            {"protocol": "every_domain", "target": ""},
            "validation",
            6,
            {"ood_accuracy", "ood_loss", "ood_adapted_accuracy"},
            ["id", "ALL", "AVG"],
        ),
        ({"protocol": "unseen_client", "shots": 1}, "oracle", 5, {"ood_adapted_accuracy"}, ["id", "ood", "ALL", "AVG"]),
    ],
)
def test_each_protocol_has_its_figures(
    data: dict[str, Any],
    selection: str,
    clients: int,
    absent: set[str],
    shown: list[str],
    cache: Path,
    tmp_path: Path,
) -> None:
    screen = io.StringIO()
    console = Console(RichConsole(file=screen, width=100))
    config = small(cache, rounds=1, data=data, selection=selection)
    summary = run_config(config, tmp_path / "run", console, never())
    console.result(summary)
    assert summary["clients"] == clients
    absent = absent | {"attack_success"} | {name for name in Metrics._fields if name.startswith("probe_")}
    assert set(Metrics._fields) - set(summary) == absent
    record = json.loads((tmp_path / "run/metrics.jsonl").read_text())
    assert set(Metrics._fields) - set(record) == absent
    names = {"id": "id_accuracy", "ood": "ood_accuracy", "ALL": "all_accuracy", "AVG": "avg_accuracy"}
    assert "round 1/1  " + "  ".join(f"{name} {summary[names[name]]:.3f}" for name in shown) in screen.getvalue()
    assert f"id {summary['id_accuracy']:.3f}  ALL {summary['all_accuracy']:.3f}" in screen.getvalue()
    assert ("r45 (unseen)" in screen.getvalue()) == ("ood" in shown)
    # One client holds one domain.
    of_sources = [value for name, value in summary["per_domain_accuracy"].items() if name != summary["target"]]
    assert len(of_sources) == clients
    assert summary["avg_accuracy"] == pytest.approx(np.mean(of_sources))
    # The oracle is reported only where it is asked for.
    assert summary["selection"]["used"] == selection
    assert set(summary["selection"]) == {"used", "last", "validation", "validation_by_size", selection}
    assert summary["id_accuracy"] == summary["selection"][selection]["id_accuracy"]


@pytest.mark.slow
def test_a_figure_comes_with_its_number_of_images_and_interval(finished: Finished) -> None:
    counted, accuracies = finished.summary["images_by_domain"], finished.summary["per_domain_accuracy"]
    assert counted.keys() == accuracies.keys()
    for name, accuracy in accuracies.items():
        right = accuracy * counted[name]
        assert right == pytest.approx(round(right), abs=1e-6)
    screen = io.StringIO()
    Console(RichConsole(file=screen, width=100)).result(finished.summary)
    for name, accuracy in accuracies.items():
        low, high = wilson(round(accuracy * counted[name]), counted[name])
        (line,) = [line for line in screen.getvalue().splitlines() if f" {name} " in line and "│" in line]
        assert f"{accuracy:.3f}" in line
        assert f"{counted[name]} │ {low:.3f} to {high:.3f}" in line


@pytest.mark.slow
def test_a_finished_run_is_not_done_again(finished: Finished) -> None:
    before = times_written(finished.path)
    assert run_config(finished.config, finished.path, Console(), never()) == finished.summary
    assert before == times_written(finished.path)


@pytest.mark.parametrize("fewer", [0, 2])
def test_a_run_that_another_process_finishes_meanwhile_is_not_done_again(
    fewer: int, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock, said = tmp_path / "run", runner.lock_or_see, io.StringIO()
    if fewer:
        open_workdir(path, dataclasses.replace(finished.config, rounds=fewer))

    def late(path: Path, say: Callable[[str], None]) -> AbstractContextManager[Workdir]:
        shutil.copytree(finished.path, path, dirs_exist_ok=True)
        return lock(path, say)

    monkeypatch.setattr(runner, "lock_or_see", late)
    console = Console(RichConsole(file=said, width=100))
    assert runner.run_experiment(build(finished.config), path, console, never()) == finished.summary
    assert "finished before" in said.getvalue()
    for name in ("summary.json", "config.json", "metrics.jsonl"):
        assert (path / name).read_bytes() == (finished.path / name).read_bytes()


def test_another_experiments_folder_is_left_alone(finished: Finished, tmp_path: Path) -> None:
    path, config, before = finished.path, finished.config, times_written(finished.path)
    with pytest.raises(UserError, match=r"holds another experiment: config.seed is 0 there and 1 here"):
        run_config(dataclasses.replace(config, seed=1), path, Console(), never())
    other = dataclasses.replace(config, batch_size=1, method=METHODS["fedprox"].hyper(name="fedprox"))
    with pytest.raises(UserError, match=r"holds another experiment: config.method.name is fedavg there and fedprox"):
        run_config(other, path, Console(), never())
    assert before == times_written(path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("all I have")
    with pytest.raises(UserError, match=r"not empty and holds no config\.json"):
        run_config(config, tmp_path / "mine", Console(), never())
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_config_half_written_by_a_killed_run_is_no_obstacle(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.config.json.123").write_text('{"config":')
    assert open_workdir(tmp_path / "run", small(cache)).config.exists()


@pytest.mark.slow
def test_trackers_have_each_round_once_and_one_that_fails_ends_nothing(
    finished: Finished, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, _ = fake_mlflow(monkeypatch)
    fake_wandb(monkeypatch)
    monkeypatch.delattr("wandb.init")
    screen = io.StringIO()
    config = dataclasses.replace(finished.config, writers="wandb,mlflow")
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "run", Console(RichConsole(file=screen, width=500)), StopAfter(4))
    # Who is told of a run may change on the way.
    run_config(dataclasses.replace(config, writers="mlflow"), tmp_path / "run", Console(), never())
    assert (tmp_path / "run/metrics.jsonl").read_text() == (finished.path / "metrics.jsonl").read_text()
    (rounds,) = runs.values()
    assert [step for step, _ in rounds] == [1, 2, 3, 4]
    assert screen.getvalue().count("Weights & Biases' records cannot be written") == 1
    assert not (tmp_path / "run/tensorboard").exists()


def test_a_missing_library_is_refused_before_the_folder_is_made(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fdgjax\[wandb\]'"):
        run_config(small(cache, writers="wandb"), tmp_path / "run", Console(), never())
    assert not (tmp_path / "run").exists()


def test_memory_is_said_before_and_after(finished: Finished) -> None:
    summary = finished.summary
    predicted, warning, peak = [line for line in finished.screen.splitlines() if line.startswith("memory: ")]
    assert f"{round(summary['predicted_memory_bytes'] / 2**20):,} MiB predicted for a round (data" in predicted
    assert "0 MiB are free; it may be killed: set --config.client_axis=map" in warning
    assert f"{round(summary['peak_memory_bytes'] / 2**20):,} MiB at the peak of the" in peak
    # The process holds more than what the round takes.
    assert 0 < summary["predicted_memory_bytes"] < summary["peak_memory_bytes"]


def test_a_model_larger_than_all_memory_is_refused_before_it_is_made(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdgjax.run.runner.capacity_bytes", lambda: 1000)
    with pytest.raises(UserError, match=r"state of the run needs .* MiB of memory and there are 0; expected") as error:
        run_config(small(cache), tmp_path / "run", Console(), never())
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_divergence_names_client_and_round_and_can_be_left_out(cache: Path, tmp_path: Path) -> None:
    config = small(cache)
    diverging = dataclasses.replace(
        config, method=dataclasses.replace(config.method, client_optimizer="sgd", client_learning_rate=1e38)
    )
    with pytest.raises(UserError, match=r"client 0 sent an update with NaN or infinity in round 1; .*drop_nonfinite"):
        run_config(diverging, tmp_path / "stopped", Console(), never())
    leaving_out = dataclasses.replace(diverging, drop_nonfinite=True)
    summary = run_config(leaving_out, tmp_path / "dropped", Console(), never())
    assert np.isfinite(summary["id_loss"])
    first = json.loads((tmp_path / "dropped/metrics.jsonl").read_text().splitlines()[0])
    assert first["dropped"] == [0, 1, 2, 3, 4]
    assert (summary["updates_dropped"], summary["updates"]) == (20, 20)
    screen = io.StringIO()
    Console(RichConsole(file=screen, width=500)).result(summary)
    assert "20 of 20 updates were not finite, and were left out; the model is the initial one" in screen.getvalue()


@pytest.mark.slow
def test_a_method_without_labels_is_judged_by_a_probe(cache: Path, tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(RichConsole(file=screen, width=100))
    probe = {"percent": "20,50", "epochs": 2}
    config = small(cache, "fedgala", rounds=2, eval_every=2, drop_last=True, probe=probe)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, width=0.01))
    summary = run_config(config, tmp_path / "run", console, never())
    console.result(summary)
    assert {name for name in Metrics._fields if name in summary} == {
        "probe_accuracy",
        "probe_deviation",
        "probe_by_percent",
        "probe_deviation_by_percent",
    }
    assert list(summary["probe_by_percent"]) == ["20", "50"]
    assert summary["probe_accuracy"] == summary["probe_by_percent"]["20"]
    assert set(summary["selection"]) == {"used", "last"}
    first, second = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert {"random_encoder_probe", "pixel_probe"} <= set(first)
    assert not {"random_encoder_probe", "pixel_probe"} & set(second)
    assert first["coefficients/discarded"] == [0.0] * 5
    assert f"probe {summary['probe_accuracy']:.3f}" in screen.getvalue()
    assert "20 %" in screen.getvalue()
