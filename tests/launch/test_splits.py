"""The parts of a variance that splits and seeds have, and the runs they are computed from."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.utils.checksums import read_checked_json, write_checked_json
from launch import splits
from launch.splits import main, shares
from tests.report.folders import write_run


def with_avg_and_all(run: Path, first: float) -> None:
    """Gives each seed of a run the figures AVG, rising by .01 with each evaluation, and ALL, twice as large."""
    for place in run.glob("seed_*"):
        avg = first
        records = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        for record in (record for record in records if "id_accuracy" in record):
            record |= {"avg_accuracy": avg, "all_accuracy": 2 * avg}
            avg += 0.01
        (place / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        last = {key: records[-1][key] for key in ("avg_accuracy", "all_accuracy")}
        write_checked_json(place / "summary.json", read_checked_json(place / "summary.json") | last)


def test_each_seed_on_each_split_is_kept_and_its_table_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "FILE", tmp_path / "splits.csv")
    runs = [write_run(tmp_path / str(split), seeds=(0, 1), data={"split_seed": split}) for split in (3, 4)]
    for run, first in zip(runs, (0.2, 0.3), strict=True):
        with_avg_and_all(run, first)
    assert main(["splits", *map(str, runs)]) == 0
    head, *rows = splits.FILE.read_text().splitlines()
    assert head == "method,split,seed,avg,all,avg_last,all_last"
    lower, higher = "0.22,0.44,0.21,0.42", "0.32,0.64,0.31,0.62"
    assert rows == [f"fedavg,3,0,{lower}", f"fedavg,3,1,{lower}", f"fedavg,4,0,{higher}", f"fedavg,4,1,{higher}"]
    table = splits.splits("")
    assert "| fedavg | AVG of the chosen round | 27.0 | 7.1 | 0.0 | 0.0 | 7.1 | < 0.001 |" in table
    assert "| fedavg | ALL of the last 10 rounds | 52.0 | 14.1 | 0.0 | 0.0 | 14.1 | < 0.001 |" in table


@pytest.mark.parametrize("split", [-1, 3])
def test_a_run_without_a_split_of_its_own_or_without_figures_is_refused(
    split: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(splits, "FILE", tmp_path / "splits.csv")
    run = write_run(tmp_path / "run", data={"split_seed": split})
    if split < 0:
        with_avg_and_all(run, 0.2)
    assert main(["splits", str(run)]) == 2
    assert "is no run with AVG and ALL on a given split" in capsys.readouterr().err
    assert not splits.FILE.exists()


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 6))
def test_what_a_split_or_a_seed_does_to_all_alike_is_its_own(number: int, splits: int, seeds: int) -> None:
    rng = np.random.default_rng(number)
    of_split, of_seed = rng.normal(size=splits), rng.normal(size=seeds)
    found = shares(0.5 + of_split[:, None] + of_seed)
    assert found.mean == pytest.approx(0.5 + of_split.mean() + of_seed.mean())
    assert found.split == pytest.approx(of_split.std(ddof=1))
    assert found.seed == pytest.approx(of_seed.std(ddof=1))
    assert found.rest == pytest.approx(0, abs=1e-6)
    assert found.chance < 1e-3


def test_variances_of_many_tables_are_on_average_those_they_were_drawn_with() -> None:
    rng = np.random.default_rng(0)
    tables = [
        rng.normal(0, 3, (4, 1)) + rng.normal(0, 2, (1, 5)) + rng.normal(0, 0.5, (4, 5)) + 10 for _ in range(1000)
    ]
    found = np.array([[each.split, each.seed, each.rest] for each in map(shares, tables)])
    assert (found**2).mean(axis=0) == pytest.approx([9, 4, 0.25], rel=0.1)


def test_splits_that_do_nothing_differ_by_chance_as_often_as_said() -> None:
    rng = np.random.default_rng(1)
    chances = np.array([shares(rng.normal(0, 2, (1, 5)) + rng.normal(size=(4, 5))).chance for _ in range(2000)])
    assert np.quantile(chances, [0.05, 0.25, 0.5, 0.75]) == pytest.approx([0.05, 0.25, 0.5, 0.75], abs=0.035)
