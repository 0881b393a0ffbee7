"""Runs that differ in numbers alone leave, trained as one program, what each leaves alone."""

import dataclasses
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chex
import jax
import pytest

from fdgjax.config import Config
from fdgjax.experiments import build
from fdgjax.methods import METHODS
from fdgjax.run.batched_runs import batches, differing_values, run_batched
from fdgjax.run.compilation import state_shapes
from fdgjax.run.console import silent_console
from fdgjax.run.loop import images_per_round
from fdgjax.run.records import Workdir
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.errors import UserError
from tests.runs import StopAfter, assert_same_run, never, perceptron, small
from tests.toys import KINDS

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


def member(cache: Path, name: str, hyper: dict[str, Any], **changes: Any) -> Config:
    config = small(cache, name, **changes)
    return dataclasses.replace(config, method=dataclasses.replace(config.method, **hyper))


def together(configs: Sequence[Config], folder: Path, stop: threading.Event | None = None) -> list[Path]:
    paths = [folder / str(i) for i in range(len(configs))]
    run_batched(configs, paths, silent_console(), stop or never())
    return paths


def check_against_single(configs: Sequence[Config], paths: Sequence[Path], alone: Path) -> None:
    for i, (config, path) in enumerate(zip(configs, paths, strict=True)):
        run_config(config, alone / str(i), silent_console(), never())
        assert_same_run(path, alone / str(i), config)


def two(cache: Path, name: str, **changes: Any) -> list[Config]:
    """Two learning rates."""
    return [member(cache, name, {"client_learning_rate": rate}, **changes) for rate in (1e-2, 3e-3)]


@pytest.mark.slow
def test_members_leave_what_they_leave_alone(cache: Path, tmp_path: Path) -> None:
    """Learning rates, a term's weight and a first seed differ; each has two seeds."""
    configs = [
        member(cache, "fedprox", {"client_learning_rate": 1e-2, "mu": 0.1}, seeds=2),
        member(cache, "fedprox", {"client_learning_rate": 3e-3, "mu": 0.5}, seeds=2, seed=3),
    ]
    assert batches(configs) == [[0, 1]]
    paths = together(configs, tmp_path / "together")
    check_against_single(configs, paths, tmp_path / "alone")
    for config, path in zip(configs, paths, strict=True):
        summary, images = json.loads((path / "summary.json").read_text()), images_per_round(build(config))
        # A member's speed is of its share of the time.
        assert summary["images_per_second"] * summary["seconds_per_round"] * 2 == pytest.approx(sum(images))


def on(cache: Path, name: str, target: str, excluded: str = "", **changes: Any) -> Config:
    config = small(cache, name, **changes)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, target=target, excluded=excluded))


def test_names_with_commas_are_counted_as_one_domain(cache: Path) -> None:
    one, two, other = (on(cache, "fedavg", "r45", excluded) for excluded in ('"north, east"', "north,east", "r0"))
    assert batches([one, two, other]) == [[0, 2], [1]]


@pytest.mark.slow
def test_members_may_have_other_unseen_and_excluded_domains(cache: Path, tmp_path: Path) -> None:
    configs = [
        on(cache, "fedavg", target, excluded, seeds=2, rounds=2) for target, excluded in (("r0", "r15"), ("r75", "r0"))
    ]
    assert batches([*configs, on(cache, "fedavg", "r0", seeds=2, rounds=2)]) == [[0, 1], [2]]
    paths = together(configs, tmp_path / "together")
    check_against_single(configs, paths, tmp_path / "alone")
    summary = json.loads((paths[1] / "summary.json").read_text())
    assert (summary["target"], summary["excluded"], summary["clients"]) == ("r75", ["r0"], 4)
    assert set(summary["per_domain_accuracy"]) == {"r15", "r30", "r45", "r60", "r75"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(KINDS) - {"fedavg"}))
def test_members_of_every_kind_of_method_leave_what_they_leave_alone(name: str, cache: Path, tmp_path: Path) -> None:
    configs = two(cache, name, rounds=1, eval_every=1)
    check_against_single(configs, together(configs, tmp_path / "together"), tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(KINDS) - {"fedavg"}))
def test_unseen_domains_of_every_kind_of_method_leave_what_they_leave_alone(
    name: str, cache: Path, tmp_path: Path
) -> None:
    configs = [on(cache, name, target, rounds=1, eval_every=1) for target in ("r15", "r75")]
    check_against_single(configs, together(configs, tmp_path / "together"), tmp_path / "alone")


@pytest.mark.slow
def test_states_of_samples_are_refused_where_members_have_other_numbers_of_them(cache: Path, tmp_path: Path) -> None:
    """Pseudo-labels that are given once are kept for each sample."""
    configs = [on(cache, "fedavg", target) for target in ("r15", "r75")]
    served = [
        dataclasses.replace(one, data=dataclasses.replace(one.data, protocol="labelled_server", server="r0"))
        for one in configs
    ]
    with pytest.raises(UserError, match="the method's state depends on the number of samples"):
        together(served, tmp_path)


STRUCTURAL = {"atp": {"rate_share"}, "feddg": {"share"}, "rscfed": {"share"}}
"""Numbers that count rounds, frequencies or clients, on which the structure of the program depends; so it does on the
smallest crop of methods without labels."""


def floats_to_search(h: Any) -> dict[str, tuple[float, float]]:
    """Two values of each float of a method that a search varies, neither of which switches a term off."""
    left_out, found = STRUCTURAL.get(h.name, set()) | {"smallest_crop"}, {}
    for field in dataclasses.fields(h):
        values = [one for one in field.metadata.get("search", ()) if isinstance(one, float) and one not in (0, 1)]
        when = field.metadata.get("when")
        if isinstance(field.default, float) and values and (when is None or when.applies(h)):
            found[field.name] = (values[0], values[-1] if len(values) > 1 else values[0] / 2)
    return {key: pair for key, pair in found.items() if key not in left_out}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_float_of_a_method_may_be_an_argument(name: str, cache: Path) -> None:
    values = floats_to_search(small(cache, name).method)
    first, other = (
        member(cache, name, {key: pair[i] for key, pair in values.items()}, model="digits_cnn") for i in (0, 1)
    )
    family = build(first, [other])
    state = state_shapes(family)
    after, _ = jax.eval_shape(family.round, state, family.train)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    jax.eval_shape(family.evaluation.observe, state, family.federation)


@pytest.mark.slow
def test_a_stopped_family_goes_on_and_so_does_a_member_alone(cache: Path, tmp_path: Path) -> None:
    configs = two(cache, "fedavg", checkpoint_every=1)
    paths = [tmp_path / str(i) for i in range(2)]
    for stops in (3, 2):
        with pytest.raises(Interrupted, match="stopped after round"):
            run_batched(configs, paths, silent_console(), StopAfter(stops))
    first = paths[0]
    run_config(configs[0], first, silent_console(), never())
    assert Workdir(first).summary.exists()
    run_config(configs[1], paths[1], silent_console(), never())
    check_against_single(configs, paths, tmp_path / "alone")


@pytest.mark.slow
def test_members_at_different_rounds_are_left_to_single_runs(cache: Path, tmp_path: Path) -> None:
    configs = two(cache, "fedavg")
    paths = [tmp_path / str(i) for i in range(2)]
    with pytest.raises(Interrupted):
        run_config(configs[0], paths[0], silent_console(), StopAfter(4))
    with pytest.raises(UserError, match=r"have come to rounds \[0, \d\]; expected the same round"):
        run_batched(configs, paths, silent_console(), never())
    run_config(configs[0], paths[0], silent_console(), never())


def test_who_may_train_together(cache: Path) -> None:
    def of(**method: Any) -> Config:
        return member(cache, "fedprox", method)

    configs = [
        of(mu=0.1),
        of(mu=0.0),
        of(mu=0.2, client_learning_rate=0.1),
        of(mu=0.1, client_learning_rate_decay=0.5),
        of(mu=0.1, client_optimizer="sgd"),
        member(cache, "fedprox", {}, rounds=5),
        member(cache, "fedprox", {"mu": 1.0}, seed=7),
    ]
    assert batches(configs) == [[0, 2, 6], [1], [3], [4], [5]]
    assert batches(configs, 2) == [[0, 2], [6], [1], [3], [4], [5]]
    assert differing_values([configs[0], configs[2]]) == "method.client_learning_rate=0.001,0.1; method.mu=0.1,0.2"


@pytest.mark.slow
def test_a_number_that_python_needs_is_refused_in_one_line(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the method needs a number before it is compiled") as error:
        together([member(cache, "feddg", {"share": share}) for share in (0.3, 0.5)], tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())
