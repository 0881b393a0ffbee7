"""A writer has every round once, however often a run is killed; none that fails ends a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flax.traverse_util import flatten_dict
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.config import make_config, read_config, to_plain
from fdgjax.loggers import LOGGERS, Logger, RunInfo, Sink, check_loggers, loggers_of, open_loggers
from fdgjax.loggers.base import numbers
from fdgjax.loggers.run_id import id_file
from fdgjax.utils.errors import UserError
from tests.loggers.trackers import Rounds, fake_mlflow, fake_wandb

ROUNDS = 6
CONFIG = to_plain(read_config(make_config("fedavg"))) | {"rounds": ROUNDS}
FAKES: dict[str, Callable[[pytest.MonkeyPatch], tuple[dict[str, Rounds], Any]]] = {
    "wandb": fake_wandb,
    "mlflow": fake_mlflow,
}


def record(round_: int) -> dict[str, Any]:
    return {"round": round_, "loss": 1 / round_, "weights": [0.25, 0.75], "domains": {"r0": 1}, "name": "x"}


def trained(writers: list[Logger], folder: Path, done: int, until: int, warn: Callable[[str], None]) -> None:
    """A run that goes on after round `done` and is killed after `until`."""
    log = open_loggers(writers, RunInfo(folder, CONFIG, done), [record(i) for i in range(1, done + 1)], warn)
    for round_ in range(done + 1, until + 1):
        log.write(record(round_))
    if until == ROUNDS:
        log.close()


@pytest.mark.parametrize(("name", "mode"), [("mlflow", "offline"), ("wandb", "offline"), ("wandb", "online")])
def test_a_tracker_has_every_round_of_a_killed_run_once(
    name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    runs, _ = FAKES[name](monkeypatch)
    # Killed after rounds 3 and 5 with the checkpoints of rounds 2 and 4, then without the tracker for a round.
    for done, until in ((0, 3), (2, 5)):
        trained(loggers_of(name), tmp_path, done, until, pytest.fail)
    trained([], tmp_path, 4, 5, pytest.fail)
    trained(loggers_of(name), tmp_path, 5, ROUNDS, pytest.fail)
    (rounds,) = runs.values()
    assert [step for step, _ in rounds] == list(range(1, ROUNDS + 1))
    assert all(values == dict(numbers(record(step))) for step, values in rounds)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, ROUNDS), st.integers(0, ROUNDS), st.booleans()), max_size=5))
def test_no_round_is_missing_and_none_is_twice(parts: list[tuple[int, int, bool]]) -> None:
    kept: list[int] = []
    tracker = Logger(
        *("kept", "kept", ""),
        lambda place: Sink(max(kept, default=0), lambda step, _: kept.append(step), lambda: None),
    )
    for done, more, there in (*parts, (ROUNDS, 0, True)):
        trained([tracker] if there else [], Path(), done, min(done + more, ROUNDS), pytest.fail)
        assert kept == list(range(1, len(kept) + 1))
    assert len(kept) == ROUNDS


def test_a_tracker_added_later_gets_the_rounds_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, store = fake_mlflow(monkeypatch)
    trained(loggers_of("mlflow"), tmp_path, 4, ROUNDS, pytest.fail)
    # Another store knows nothing of it; the first one is found again, whoever may write there.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@there")
    trained(loggers_of("mlflow"), tmp_path, 2, 4, pytest.fail)
    trained(loggers_of("mlflow"), tmp_path, 4, ROUNDS, pytest.fail)
    assert [[step for step, _ in rounds] for rounds in runs.values()] == [list(range(1, ROUNDS + 1))] * 2
    assert store["addresses"] == [f"sqlite:///{tmp_path}/mlflow.db", *["https://me:secret@there"] * 2]
    assert "secret" not in id_file(tmp_path, "mlflow").read_text()


def test_two_runs_may_make_mlflows_experiment_at_once_and_a_moved_folder_keeps_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, store = fake_mlflow(monkeypatch)
    store["race"] = True
    (folder := tmp_path / "here").mkdir()
    trained(loggers_of("mlflow"), folder, 0, 2, pytest.fail)
    folder.rename(tmp_path / "there")
    trained(loggers_of("mlflow"), tmp_path / "there", 2, ROUNDS, pytest.fail)
    assert [[step for step, _ in rounds] for rounds in runs.values()] == [list(range(1, ROUNDS + 1))]


def test_what_mlflow_is_told_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, store = fake_mlflow(monkeypatch)
    log = open_loggers(loggers_of("mlflow"), RunInfo(tmp_path, CONFIG, 0), [], pytest.fail)
    log.write({"round": 1, "accuracy": {"a|b é": 0.5, "a<b é": 0.25}, "many": [0.0] * 1500})
    log.close()
    assert store["parameters"]["run0"] == {key: str(value) for key, value in flatten_dict(CONFIG, sep=".").items()}
    assert store["status"]["run0"] == "KILLED"
    first, second = runs["run0"]
    assert (first[1]["accuracy/a_7c_b é"], first[1]["accuracy/a_3c_b é"]) == (0.5, 0.25)
    # A round is noted as whole once all its numbers are there.
    assert ["round" in values for _, values in (first, second)] == [False, True]
    trained(loggers_of("mlflow"), tmp_path, 1, ROUNDS, pytest.fail)
    assert store["status"]["run0"] == "FINISHED"


@pytest.mark.parametrize("mode", ["", "online"])
def test_wandb_is_offline_unless_its_variable_says_otherwise(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode:
        monkeypatch.setenv("WANDB_MODE", mode)
    _, (call,) = fake_wandb_calls(tmp_path, monkeypatch)
    assert (call["mode"], call["dir"]) == (mode or "offline", tmp_path)
    assert call["name"] == "fedavg-rotated_digits-r45-s0"


def fake_wandb_calls(folder: Path, patch: pytest.MonkeyPatch) -> tuple[dict[str, Rounds], list[dict[str, Any]]]:
    runs, calls = fake_wandb(patch)
    trained(loggers_of("wandb"), folder, 0, ROUNDS, pytest.fail)
    return runs, calls


@pytest.mark.parametrize("failing", ["open", "write", "close", "note"])
def test_a_writer_that_fails_is_said_once_and_the_others_go_on(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def fail(*arguments: Any) -> Any:
        raise RuntimeError("the server\nis away " + "very " * 100)

    sink = Sink(0, fail if failing == "write" else lambda *_: None, fail if failing == "close" else lambda: None)
    bad = Logger("bad", "The bad one", "", fail if failing == "open" else lambda place: sink)
    good = Logger("good", "The good one", "", lambda place: Sink(0, lambda step, _: kept.append(step), kept.clear))
    if failing == "note":
        fake_wandb(monkeypatch)
        id_file(tmp_path, "wandb").write_text("{")
        bad = LOGGERS["wandb"]._replace(title="The bad one")
    said: list[str] = []
    log = open_loggers([bad, good], RunInfo(tmp_path, CONFIG, 0), [], said.append)
    for round_ in range(1, 50):
        log.write(record(round_))
    assert kept == list(range(1, 50))
    log.close()
    assert kept == []
    (line,) = said
    assert line.startswith("The bad one cannot be written (")
    assert line.endswith("): the run goes on without it")
    assert "\n" not in line
    assert len(line) < 300


def test_a_library_that_is_missing_is_said_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"writers=mlflow needs mlflow, not installed; .*\[mlflow\]', or leave 'mlflow'"
    ):
        check_loggers("mlflow")
    check_loggers("")


def test_every_optional_writer_has_an_extra_of_its_name() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for name, writer in LOGGERS.items():
        wanted = project["dependencies"] if writer.package in project["dependencies"] else None
        assert wanted or any(word.startswith(writer.package) for word in project["optional-dependencies"][name])


def test_the_folder_names_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = fake_wandb_calls(tmp_path, monkeypatch)[0]
    assert json.loads(id_file(tmp_path, "wandb").read_text()) == {"run": run}
