"""Several seeds side by side leave what as many runs would have left, compiled without optimisation bit for bit."""

import io
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console as RichConsole

from fdgjax.engine import RoundInfo, State
from fdgjax.experiments import build
from fdgjax.run.console import Console
from fdgjax.run.loop import images_per_round, train_rounds
from fdgjax.run.runner import Interrupted, run_config
from fdgjax.utils.checksums import read_checked_json
from fdgjax.utils.errors import UserError
from tests.runs import StopAfter, assert_same_run, built_once, never, perceptron, records_of, small

__all__ = ["built_once", "perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron", "built_once")

ON_A_CPU = jax.default_backend() == "cpu"


def check_seed(path: Path, alone: Path) -> None:
    """A seed's folder is what a run of that seed alone left, but for checkpoints, what reads them, and timings."""
    assert {p.name for p in alone.iterdir()} - {p.name for p in path.iterdir()} == {".lock", "checkpoints", "data.json"}
    assert list((path / "tensorboard").glob("events.*"))
    got, wanted = records_of(path), records_of(alone)
    if ON_A_CPU:
        assert got == wanted
    assert got["config.json"] == wanted["config.json"]
    assert read_checked_json(path / "summary.json").keys() == read_checked_json(alone / "summary.json").keys()


# Domains dealt two to a client: the seeds' clients have different sizes.
UNEVEN = {"data": {"clients": 4, "domains_per_client": 2, "shots": 1}}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "changes"), [("fedavg", UNEVEN), ("central", {})])
def test_several_seeds_leave_what_as_many_runs_leave(
    method: str, changes: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    screen = io.StringIO()
    console = Console(RichConsole(file=screen, width=100))
    config = small(cache, method, seed=4, seeds=2, **changes)
    if changes:
        sizes = np.asarray(build(config).train.train.length)
        assert (sizes[0] != sizes[1]).any()
    summary = run_config(config, tmp_path / "both", console, never())
    for seed in (4, 5):
        run_config(small(cache, method, seed=seed, **changes), tmp_path / f"alone_{seed}", console, never())
        check_seed(tmp_path / f"both/seed_{seed}", tmp_path / f"alone_{seed}")
    names = {".lock", "config.json", "data.json", "checkpoints", "summary.json", "seed_4", "seed_5"}
    assert {p.name for p in (tmp_path / "both").iterdir()} == names
    assert summary == read_checked_json(tmp_path / "both/summary.json")
    ood = [read_checked_json(tmp_path / f"alone_{seed}/summary.json")["ood_accuracy"] for seed in (4, 5)]
    assert summary["ood_accuracy"] == pytest.approx(np.mean(ood), abs=0 if ON_A_CPU else 0.02)
    assert f"round 4/4  id {summary['id_accuracy']:.3f}  ood {summary['ood_accuracy']:.3f}" in screen.getvalue()
    console.result(summary)
    shown = screen.getvalue()[-1500:]
    assert "seeds 4, 5: mean +- sample std" in shown
    assert f"{summary['ood_accuracy']:.3f} +- {summary['std']['ood_accuracy']:.3f}" in shown


def test_interrupted_and_resumed_equals_undisturbed(cache: Path, tmp_path: Path) -> None:
    config = small(cache, "fedavg", seeds=2, rounds=5, clients_per_round=2)
    run_config(config, tmp_path / "undisturbed", Console(), never())
    with pytest.raises(Interrupted, match=r"the same command continues"):
        run_config(config, tmp_path / "resumed", Console(), StopAfter(2))
    assert not list((tmp_path / "resumed").rglob("summary.json"))
    # Killed, it would have written more than its last checkpoint knows, for one seed more than for the other.
    for seed, more in ((0, '{"round": 3}\n{"round": 4}\n{"round'), (1, '{"round": 3}\n')):
        with (tmp_path / f"resumed/seed_{seed}/metrics.jsonl").open("a") as metrics:
            metrics.write(more)
    run_config(config, tmp_path / "resumed", Console(), never())
    assert_same_run(tmp_path / "undisturbed", tmp_path / "resumed", config)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "resumed").rglob("*") if p.is_file()}
    run_config(config, tmp_path / "resumed", Console(), never())
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "resumed").rglob("*") if p.is_file()}


def test_runs_on_one_split_differ_in_their_training_alone(cache: Path) -> None:
    together, other = (
        build(small(cache, seed=seed, seeds=seeds, data={"clients": 4, "shots": 1, **data}))
        for seed, seeds, data in ((4, 2, {"split_seed": 9}), (9, 1, {}))
    )
    for part in together.parts:
        chex.assert_trees_all_equal(part, other.parts[0])
    chex.assert_trees_all_equal(*(jax.tree.map(lambda x, row=row: x[row], together.train.train) for row in (0, 1)))
    assert any((leaf[0] != leaf[1]).any() for leaf in jax.tree.leaves(together.init().server))


@pytest.mark.slow
def test_a_folder_holds_one_set_of_seeds(cache: Path, tmp_path: Path) -> None:
    run_config(small(cache, rounds=1), tmp_path / "run", Console(), never())
    with pytest.raises(UserError, match=r"holds another experiment: config.seeds is 1 there and 2 here"):
        run_config(small(cache, rounds=1, seeds=2), tmp_path / "run", Console(), never())


def test_divergence_names_the_seed_and_the_client(cache: Path) -> None:
    experiment = build(small(cache, seed=7, seeds=2, clients_per_round=3))
    finite = jnp.array([[True, True, True], [True, True, False]])
    largest = jnp.where(finite, 1.0, jnp.nan)
    info = RoundInfo(jnp.array([[0, 1, 2], [1, 2, 4]]), jnp.ones((2, 3)), largest, finite, jnp.array([True, True]), {})
    state = State(jnp.arange(2), jnp.zeros(2, jnp.int32), {}, {}, {})
    diverging = experiment._replace(round=lambda state, federation: (state, info))
    with pytest.raises(UserError, match=r"client 4 of seed 8 sent an update with NaN or infinity in round 1;") as error:
        next(train_rounds(diverging, state))
    assert "\n" not in str(error.value)
    leaving_out = diverging._replace(config=small(cache, seed=7, seeds=2, clients_per_round=3, drop_nonfinite=True))
    records = next(train_rounds(leaving_out, state)).records
    assert [record.get("dropped") for record in records] == [None, [4]]
    absurd = diverging._replace(round=lambda state, federation: (state, info._replace(largest=1e30 * largest**0)))
    with pytest.raises(UserError, match=r"client 4 of seed 8 sent an update with numbers up to 1e\+30 in round 1;"):
        next(train_rounds(absurd, state))
    server = info._replace(largest=jnp.array([[1.0, 1, 1], [1, 1e9, jnp.nan]]), server_finite=jnp.array([True, False]))
    broken = leaving_out._replace(round=lambda state, federation: (state, server))
    with pytest.raises(UserError, match=r"server's state of seed 8 .* after round 1, in which client 2 sent .*1e\+09"):
        next(train_rounds(broken, state))
    assert images_per_round(experiment) == [
        images_per_round(build(small(cache, seed=seed, clients_per_round=3)))[0] for seed in (7, 8)
    ]
