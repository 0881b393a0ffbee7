"""A private run says after each round what it has cost, and goes on with the same noise where it stopped."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from fdgjax.config import Config
from fdgjax.run.console import Console
from fdgjax.run.runner import Interrupted, run_config
from tests.runs import StopAfter, assert_same_run, built_once, never, perceptron, small

__all__ = ["built_once", "perceptron"]
pytestmark = [pytest.mark.usefixtures("perceptron", "built_once"), pytest.mark.slow]


def quiet() -> Console:
    return Console(RichConsole(file=io.StringIO()))


def private(cache: Path, unit: str, where: str) -> Config:
    privacy = {"unit": unit, "where": where, "epsilon": 5.0}
    config = small(cache, privacy=privacy, writers="")
    return dataclasses.replace(config, method=dataclasses.replace(config.method, weighting="uniform"))


@pytest.mark.parametrize(("unit", "where"), [("client", "server"), ("client", "clients"), ("sample", "server")])
def test_the_records_say_what_it_costs_and_a_stop_changes_nothing(unit: str, where: str, tmp_path: Path) -> None:
    config = private(tmp_path / "cache", unit, where)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    summary = run_config(config, whole, quiet(), never())
    told = [json.loads(line)["privacy_epsilon"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert told == sorted(told)
    assert len(set(told)) == config.rounds
    assert told[-1] == summary["privacy_epsilon"] <= 5.0
    with pytest.raises(Interrupted):
        run_config(config, stopped, quiet(), StopAfter(3))
    run_config(config, stopped, quiet(), never())
    assert_same_run(whole, stopped, config)
