"""A run continued for more rounds is the run that had them from the start, bit for bit, or is refused in one line."""

import contextlib
import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console as RichConsole

from fdgjax.config import Config
from fdgjax.config.schema import PrivacyConfig
from fdgjax.evaluation.metrics import is_evaluated
from fdgjax.experiments import build
from fdgjax.methods import METHODS
from fdgjax.run.console import Console
from fdgjax.run.extend_rounds import CONTINUED, programs
from fdgjax.run.records import History, open_checkpoints
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.checksums import read_checked_json
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.runs import StopAfter, assert_same_state, built_once, never, perceptron, records_of, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


def of_rounds(config: Config, rounds: int) -> Config:
    return dataclasses.replace(config, rounds=rounds)


def scheduled(config: Config, schedule: str) -> Config:
    return dataclasses.replace(config, method=dataclasses.replace(config.method, client_schedule=schedule))


def without_history(records: dict[str, Any]) -> dict[str, Any]:
    def strip(content: Any) -> Any:
        return {key: content[key] for key in content if key != CONTINUED} if isinstance(content, dict) else content

    return {name: strip(content) for name, content in records.items()}


def whole(config: Config, path: Path) -> None:
    run_config(config, path, Console(), never())


def cut_short(config: Config, path: Path) -> None:
    with pytest.raises(Interrupted):
        run_config(config, path, Console(), StopAfter(3))


PROLONGED = [
    (whole, {"selection": "validation"}),
    (cut_short, {"clients_per_round": 2}),
    (whole, {"seeds": 2, "seed_axis": "map"}),
    (whole, {"data": {"streaming": True}}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("begin", "changes"), mostly_slow(PROLONGED, PROLONGED[:1]))
def test_a_continued_run_is_the_longer_run_from_the_start(
    begin: Callable[[Config, Path], None], changes: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    # Evaluated in rounds 2 and 3 by itself, and in 2, 4 and 5 by the longer run.
    short = small(cache, rounds=3, **changes)
    long, screen = of_rounds(short, 5), io.StringIO()
    begin(short, tmp_path / "run")
    summary = run_config(long, tmp_path / "run", Console(RichConsole(file=screen, width=200)), never())
    whole(long, tmp_path / "undisturbed")
    assert "a run of 3 rounds, continued to 5" in screen.getvalue()
    assert (summary["rounds"], summary[CONTINUED]) == (5, [3])
    assert without_history(records_of(tmp_path / "run")) == records_of(tmp_path / "undisturbed")
    assert_same_state(tmp_path / "run", tmp_path / "undisturbed", long)
    kept = tmp_path / "run/summary_3.json"
    assert kept.exists() == (begin is whole)
    if kept.exists():
        assert read_checked_json(kept)["rounds"] == 3
    # It is finished.
    assert run_config(long, tmp_path / "run", Console(), never()) == summary


@pytest.mark.slow
def test_a_continued_run_may_go_on_once_more(cache: Path, tmp_path: Path) -> None:
    for rounds in (2, 3, 4):
        whole(small(cache, rounds=rounds), tmp_path)
    assert read_checked_json(tmp_path / "summary.json")[CONTINUED] == [2, 3]


@pytest.mark.slow
def test_a_last_round_loses_its_evaluation_where_the_longer_run_has_none(cache: Path, tmp_path: Path) -> None:
    config = small(cache, rounds=3)
    for rounds in (3, 5):
        whole(of_rounds(config, rounds), tmp_path)
        lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert [line["round"] for line in lines if is_evaluated(line)] == ([2, 3] if rounds == 3 else [2, 4, 5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "schedule", "said"),
    [
        ("fedavg", "cosine", r"of 'fedavg' with client_schedule=cosine, each of which depends on their number"),
        ("feddg_ga", "constant", r"of 'feddg_ga', each of which depends on their number"),
    ],
)
def test_a_schedule_over_the_rounds_is_one_line_and_changes_nothing(
    method: str, schedule: str, said: str, cache: Path, tmp_path: Path
) -> None:
    config = scheduled(small(cache, method, rounds=1), schedule)
    whole(config, tmp_path)
    before = records_of(tmp_path)
    with pytest.raises(UserError, match=said) as error:
        whole(of_rounds(config, 2), tmp_path)
    assert "\n" not in str(error.value)
    assert "expected 1; choose another folder" in str(error.value)
    assert records_of(tmp_path) == before


@pytest.mark.slow
def test_noise_that_follows_from_the_number_of_rounds_is_one_line(cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    plain = small(cache, rounds=1)
    uniform = dataclasses.replace(plain.method, weighting="uniform")
    with_epsilon = dataclasses.replace(
        plain, method=uniform, privacy=PrivacyConfig(unit="sample", epsilon=10.0, delta=1e-4)
    )
    whole(with_epsilon, tmp_path)
    with pytest.raises(UserError, match=r"of 'fedavg' with privacy.epsilon=10, each of which depends on their number"):
        whole(of_rounds(with_epsilon, 2), tmp_path)


@pytest.mark.slow
def test_fewer_rounds_or_another_key_are_another_experiment(cache: Path, tmp_path: Path) -> None:
    config = small(cache, rounds=2)
    whole(config, tmp_path)
    with pytest.raises(UserError, match=r"holds another experiment: config.rounds is 2 there and 1 here"):
        whole(of_rounds(config, 1), tmp_path)
    with pytest.raises(UserError, match=r"holds another experiment: config.batch_size is 64 there and 32 here"):
        whole(dataclasses.replace(of_rounds(config, 3), batch_size=32), tmp_path)


@pytest.mark.slow
def test_a_kill_while_the_folder_is_prolonged_is_made_good(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(cache, rounds=2, seeds=2, seed_axis="map")
    long = of_rounds(config, 3)
    whole(long, tmp_path / "undisturbed")
    whole(config, tmp_path / "short")
    for writes in (0, 1, 2):
        path = tmp_path / f"run-{writes}"
        shutil.copytree(tmp_path / "short", path)
        with monkeypatch.context() as patch:
            left = iter(range(writes))

            def killed(file: Path, content: Any, left: Any = left) -> None:
                from fdgjax.utils.checksums import write_checked_json

                if next(left, None) is None:
                    raise KeyboardInterrupt
                write_checked_json(file, content)

            patch.setattr("fdgjax.run.extend_rounds.write_checked_json", killed)
            with pytest.raises(KeyboardInterrupt):
                whole(long, path)
        whole(long, path)
        assert without_history(records_of(path)) == records_of(tmp_path / "undisturbed")


CONVOLUTIONAL = ("fdse", "fedfa", "gperxan", "stablefdg")
"""Methods that change convolutions."""
SCHEDULED = ("atp", "feddg_ga", "fishr", "irm", "vrex")
"""Methods with schedules over the rounds: of a step size, of penalties that begin after a share of them, of rates."""


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_programs_depend_on_the_number_of_rounds_by_a_schedule_alone(method: str, cache: Path) -> None:
    model = "digits_cnn" if method in CONVOLUTIONAL else "perceptron"
    config = scheduled(small(cache, method, model, batch_size=32), "constant")
    same = programs(build(config)) == programs(build(of_rounds(config, 40)))
    assert same == (method not in SCHEDULED)


@pytest.mark.slow
def test_a_state_of_another_structure_is_one_line_and_changes_nothing(cache: Path, tmp_path: Path) -> None:
    config = small(cache, rounds=1)
    whole(config, tmp_path)
    (step,) = (tmp_path / "checkpoints").glob("[0-9]*")
    shutil.rmtree(step)
    history = History([[{"round": 1}]], 1.0)
    with contextlib.closing(open_checkpoints(tmp_path / "checkpoints", pytest.fail)) as checkpoints:
        checkpoints.save(1, {"earlier": np.zeros(3)}, history)
    before = records_of(tmp_path)
    with pytest.raises(UserError, match="holds a state of another structure") as error:
        whole(of_rounds(config, 2), tmp_path)
    assert "\n" not in str(error.value)
    assert records_of(tmp_path) == before
    assert (tmp_path / "summary.json").is_file()
