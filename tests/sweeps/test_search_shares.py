"""Workers and machines that share a search: each trial is begun once and continued by whom it belongs to."""

import threading
from pathlib import Path

import pytest

from fdgjax.cli.search import main, parser, read_search
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted
from fdgjax.sweeps.status import hold
from tests.runs import StopAfter

pytest.importorskip("optuna")

from fdgjax.sweeps.trials import distinct_trials, open_study, work_on_trials
from tests.sweeps.searches import finish, pretending, search_of

__all__ = ["pretending"]


@pytest.mark.slow
@pytest.mark.usefixtures("pretending")
def test_several_workers_share_the_trials_of_one_search(tmp_path: Path) -> None:
    many = [threading.Thread(target=finish, args=(search_of(tmp_path, "--no_pruning"),)) for _ in range(3)]
    for one in many:
        one.start()
    for one in many:
        one.join(60)
    trials = distinct_trials(open_study(search_of(tmp_path)))
    assert len(trials) == 9
    assert {one.state.name for one in trials} == {"COMPLETE", "FAIL"}


def ended(out: Path) -> list[bool]:
    """Whether each trial is over, in their order."""
    return [trial.state.is_finished() for trial in distinct_trials(open_study(search_of(out)))]


@pytest.mark.usefixtures("pretending")
def test_a_share_takes_what_nobody_began_and_continues_what_is_its_own(tmp_path: Path) -> None:
    first, second = (("--trials", "3", "--no_pruning", "--shard", f"{number}/2") for number in (1, 2))
    with pytest.raises(Interrupted):
        work_on_trials(search_of(tmp_path, *first), Console(), StopAfter(4))
    assert ended(tmp_path) == [False]
    finish(search_of(tmp_path, *second))
    assert ended(tmp_path) == [False, True, True]
    finish(search_of(tmp_path, *first))
    assert ended(tmp_path) == [True, True, True]
    assert len({str(trial.params) for trial in distinct_trials(open_study(search_of(tmp_path)))}) == 3


@pytest.mark.usefixtures("pretending")
def test_with_another_number_of_shares_unfinished_trials_are_divided_anew(tmp_path: Path) -> None:
    words = ("--trials", "3", "--no_pruning", "--shard")
    with pytest.raises(Interrupted):
        work_on_trials(search_of(tmp_path, *words, "1/1"), Console(), StopAfter(4))
    assert ended(tmp_path) == [False]
    finish(search_of(tmp_path, *words, "2/2"))
    assert ended(tmp_path) == [False, True, True]
    finish(search_of(tmp_path, *words, "1/2"))
    assert ended(tmp_path) == [True, True, True]


@pytest.mark.parametrize("seed", ["-3", "1.5"])
def test_a_seed_is_a_whole_number(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["fedprox", "--out", "DIR", f"--seed={seed}"])
    assert f"got '{seed}'; expected a whole number from 0" in capsys.readouterr().err


@pytest.mark.usefixtures("pretending")
def test_a_seed_may_be_larger_than_the_samplers(tmp_path: Path) -> None:
    finish(search_of(tmp_path, "--trials", "2", "--seed", "99999999999"))
    assert ended(tmp_path) == [True, True]


@pytest.mark.usefixtures("pretending")
def test_without_shares_any_unfinished_trial_is_continued(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        work_on_trials(search_of(tmp_path, "--trials", "1", "--shard", "1/2"), Console(), StopAfter(4))
    finish(search_of(tmp_path, "--trials", "1"))
    assert ended(tmp_path) == [True]


@pytest.mark.usefixtures("pretending")
def test_the_status_of_a_share_is_of_its_own_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "fedprox", "--out", str(tmp_path), "--tune", "mu", "--set", "rounds=2", "--trials", "1"]
    with hold(tmp_path, "trial_0000"):
        study = open_study(read_search(parser().parse_args([*command[1:], "--shard", "1/2"])))
        study.ask().set_user_attr("share", [1, 2])
        assert main([*command, "--shard", "2/2"]) == 0, "left to the first share"
        assert main([*command, "--shard", "1/2"]) == 1
        assert "1 trials are held or were lost by other processes" in capsys.readouterr().out
    assert main([*command, "--shard", "1/2"]) == 0
