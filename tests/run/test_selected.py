"""The state of the round that validation selects is kept, whatever happens to the run, and the run's numbers stay."""

import dataclasses
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest

import fdgjax
from fdgjax.config import Config
from fdgjax.engine import State, each_seed
from fdgjax.evaluation.selection import reported
from fdgjax.experiments import build
from fdgjax.inference.kept_rounds import kept_state
from fdgjax.run.batched_runs import run_batched
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import Console, silent_console
from fdgjax.run.loop import Progress
from fdgjax.run.records import Checkpoint, newest_checkpoint
from fdgjax.run.runner import Interrupted, run_config, run_experiment
from fdgjax.run.selected import updated
from fdgjax.utils.errors import UserError
from tests.marks import mostly_slow
from tests.runs import StopAfter, assert_same_run, assert_same_state, built_once, never, perceptron, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")


def validated(cache: Path, **changes: Any) -> Config:
    """A run whose accuracy rises at first and falls from round 4 on, when a hostile client turns all learning round."""
    values = {"rounds": 7, "eval_every": 1, "checkpoint_every": 3, "selection": "validation", "writers": "", **changes}
    attack = {"kind": "sign_flip", "clients": 1, "strength": 10.0, "from_round": 4}
    config = small(cache, **values, attack=attack)
    return dataclasses.replace(config, method=dataclasses.replace(config.method, client_learning_rate=0.01))


def newest(path: Path, config: Config) -> Checkpoint:
    found = newest_checkpoint(path / "checkpoints", state_shapes(build(config)), pytest.fail)
    assert found is not None
    return found


def states_seen(config: Config, path: Path) -> dict[int, State]:
    """The state after each round of an undisturbed run."""
    seen: dict[int, State] = {}

    def see(progress: Progress) -> None:
        seen[progress.number] = jax.tree.map(np.array, progress.state)

    run_experiment(build(config), path, Console(), never(), [see])
    return seen


@pytest.mark.slow
def test_the_selected_state_is_that_of_its_round_for_each_seed(cache: Path, tmp_path: Path) -> None:
    config = validated(cache, seeds=2)
    seen = states_seen(config, tmp_path / "run")
    found = newest(tmp_path / "run", config)
    rounds = [reported(of_seed, "validation")["round"] for of_seed in found.history.records]
    assert set(rounds) != {config.rounds}, "the rule chooses the last round: the test sees nothing"
    for index, round_ in enumerate(rounds):
        wanted = each_seed(seen[round_], 2)[index]
        chex.assert_trees_all_equal(each_seed(found.selected, 2)[index], wanted)
        state, _ = kept_state(build(config), tmp_path / "run", index)
        chex.assert_trees_all_equal(state, wanted)
    for asked, left in (("selected", found.selected), (7, found.state)):
        chex.assert_trees_all_equal(fdgjax.open_run(tmp_path / "run", round=asked).state, left)


@pytest.mark.slow
def test_a_run_without_observers_keeps_the_same(cache: Path, tmp_path: Path) -> None:
    config = validated(cache)
    seen = states_seen(config, tmp_path / "seen")
    run_config(config, tmp_path / "alone", Console(), never())
    found = newest(tmp_path / "alone", config)
    chex.assert_trees_all_equal(found, newest(tmp_path / "seen", config)._replace(history=found.history))
    assert found.selected is not None
    chex.assert_trees_all_equal(found.selected, seen[int(found.selected.round)])


@pytest.mark.parametrize("looks", mostly_slow([4, 6], [6]))
def test_a_resumed_run_keeps_what_an_undisturbed_one_keeps(looks: int, cache: Path, tmp_path: Path) -> None:
    config = validated(cache)
    run_config(config, tmp_path / "whole", Console(), never())
    with pytest.raises(Interrupted):
        run_config(config, tmp_path / "run", Console(), StopAfter(looks))
    run_config(config, tmp_path / "run", Console(), never())
    assert_same_run(tmp_path / "run", tmp_path / "whole", config)


@pytest.mark.slow
@pytest.mark.parametrize("shorter", mostly_slow([4, 5], [5]))
def test_a_run_continued_for_more_rounds_keeps_what_the_longer_one_keeps(
    shorter: int, cache: Path, tmp_path: Path
) -> None:
    """The shorter run's last round is evaluated for itself alone, and chosen or not, the longer run has not seen it."""
    config = validated(cache, eval_every=3)
    for number in (shorter, config.rounds):
        run_config(dataclasses.replace(config, rounds=number), tmp_path / "run", Console(), never())
    run_config(config, tmp_path / "whole", Console(), never())
    assert_same_state(tmp_path / "run", tmp_path / "whole", config)


@pytest.mark.slow
def test_members_of_a_family_keep_what_they_keep_alone(cache: Path, tmp_path: Path) -> None:
    first = validated(cache, seeds=2, seed_axis="map")
    other = dataclasses.replace(first, method=dataclasses.replace(first.method, client_learning_rate=0.1))
    configs = [first, other]
    paths = [tmp_path / f"together_{i}" for i in range(2)]
    run_batched(configs, paths, silent_console(), never())
    for config, path in zip(configs, paths, strict=True):
        run_config(config, tmp_path / "alone" / path.name, silent_console(), never())
        assert_same_run(path, tmp_path / "alone" / path.name, config)
        assert (path / "data.json").read_bytes() == (tmp_path / "alone" / path.name / "data.json").read_bytes()


@pytest.mark.slow
def test_a_round_is_asked_for_by_name_or_number(cache: Path, tmp_path: Path) -> None:
    config = validated(cache)
    seen = states_seen(config, tmp_path / "run")
    experiment, selected = build(config), newest(tmp_path / "run", config).selected
    assert selected is not None
    chosen = int(selected.round)
    # The newest two checkpoints, of rounds 6 and 7, and the selected state.
    for asked, round_ in {"": chosen, "selected": chosen, str(chosen): chosen, "last": 7, "7": 7, "6": 6}.items():
        chex.assert_trees_all_equal(kept_state(experiment, tmp_path / "run", 0, asked)[0], seen[round_])
    gone = min({1, 2, 3, 4, 5} - {chosen})
    with pytest.raises(UserError, match=rf"the state of round {gone} is not kept; expected the round last, or one of"):
        kept_state(experiment, tmp_path / "run", 0, str(gone))
    with pytest.raises(UserError, match="--round got 'best'; expected last, selected or the number of a round"):
        kept_state(experiment, tmp_path / "run", 0, "best")


@pytest.mark.slow
def test_labels_of_the_unseen_domain_choose_no_state(cache: Path, tmp_path: Path) -> None:
    config = validated(cache, selection="oracle", rounds=2)
    run_config(config, tmp_path / "run", Console(), never())
    assert newest(tmp_path / "run", config).selected is None
    assert int(kept_state(build(config), tmp_path / "run", 0)[0].round) == 2
    with pytest.raises(UserError, match="looks at labels of the unseen domain"):
        kept_state(build(config), tmp_path / "run", 0, "selected")


@pytest.mark.slow
def test_a_run_begun_without_a_selected_state_says_so(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = validated(cache, checkpoint_every=7)

    def nothing(selected: Any, *rest: Any) -> Any:
        return selected

    with monkeypatch.context() as patch:
        patch.setattr("fdgjax.run.runner.updated", nothing)
        run_config(config, tmp_path / "run", Console(), never())
    assert newest(tmp_path / "run", config).selected is None
    state, records = kept_state(build(config), tmp_path / "run", 0)
    chosen = reported(records, "validation")["round"]
    assert int(state.round) == 7
    assert f"the state of round {chosen}, which 'validation' selects, is not kept" in caplog.text
    with pytest.raises(UserError, match=f"the state of round {chosen}, which 'validation' selects, is not kept"):
        kept_state(build(config), tmp_path / "run", 0, "selected")


def test_the_copy_survives_the_next_round() -> None:
    """The state's buffers are donated."""
    config = Config(selection="validation", eval_every=1)
    state = State(*(jax.numpy.arange(3) for _ in range(5)))
    kept = updated(None, state, [[{"round": 1, "id_accuracy": 0.5}]], config)
    jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(state)
    chex.assert_trees_all_equal(kept, State(*(jax.numpy.arange(3) for _ in range(5))))
