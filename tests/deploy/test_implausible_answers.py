"""Answers that no node of ours would give are errors of the client that sent them: one line, and a deadline's rule."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.deploy.evaluated_rounds import counts_like, plausible
from fdgjax.deploy.leaves import Leaves, by_path
from fdgjax.deploy.rounds import Policy, readable, run_rounds
from fdgjax.deploy.server import ServerPrograms
from fdgjax.deploy.terms import Terms
from fdgjax.deploy.wire import Reply, Request
from fdgjax.methods import METHODS
from fdgjax.utils.errors import UserError
from tests.deploy.faulty import one_line, server, trial
from tests.deploy.test_request_handlers import Direct
from tests.deploy.trial import Trial, node_settings
from tests.runs import perceptron

__all__ = ["perceptron", "server", "trial"]


def trained(server: ServerPrograms, **facts: Any) -> Reply:
    """What the server makes of an answer to a request to train."""
    message = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in by_path(server.shapes.message).items()}
    usual = {"round": 0, "largest": 1.0, "samples": 12, "seconds": 0.5, "compiled": 1, "loss": 2.0}
    return readable(server, Reply(1, message, {**usual, **facts}), {0: 9, 1: 12})


@pytest.mark.parametrize("name", ["round", "seconds", "compiled", "samples"])
@pytest.mark.parametrize("fact", [math.nan, math.inf, -math.inf, "1", [1], None])
def test_a_fact_that_is_no_finite_number_is_an_error(name: str, fact: object, server: ServerPrograms) -> None:
    one_line(trained(server, **{name: fact}), f"{name}={fact!r}", "finite numbers")


def test_what_diverges_is_none_and_is_judged_later(server: ServerPrograms) -> None:
    for facts in ({}, {"largest": math.inf}, {"largest": math.nan}, {"loss": math.nan}):
        assert not trained(server, **facts).error
    one_line(trained(server, largest="x"), "largest='x'")
    one_line(trained(server, samples=11), "it holds 11 samples and held 12")


COUNTS = counts_like({"source": 1, "test": 1, "target": 2, "adapted": 2})


def evaluated(terms: Terms, arrays: Leaves) -> Reply:
    return plausible(Reply(1, arrays, {}), terms, models=2)


def test_counts_that_no_samples_have_are_an_error(trial: Trial) -> None:
    right = {path: np.full_like(leaf, 3 if "total" in path or "count" in path else 2) for path, leaf in COUNTS.items()}
    assert not evaluated(trial.terms, right).error
    assert not evaluated(trial.terms, {}).error
    # The loss of a model that diverged, and its confidence, are as the simulation has them.
    diverged = {path: leaf * np.nan for path, leaf in right.items() if "loss" in path or "confidence" in path}
    assert not evaluated(trial.terms, {**right, **diverged}).error
    for path in (".source.correct", ".target.bin_correct", ".adapted.total", ".test.bin_count"):
        for value in (math.nan, math.inf, -1.0, *([1e6] if "correct" in path else [1.0])):
            one_line(evaluated(trial.terms, {**right, path: np.full_like(right[path], value)}), "no more samples than")
    one_line(evaluated(trial.terms, {**right, ".source.correct": np.zeros((3, 3), np.float32)}), "(3, 3)")
    one_line(evaluated(trial.terms, {path: leaf for path, leaf in right.items() if path != ".test.loss"}), "nothing")
    for path in (".source.more.total", "total", ".attacked.total"):
        one_line(evaluated(trial.terms, {**right, path: np.ones((1, 1), np.float32)}), f"'{path}'")
    assert evaluated(trial.terms, {})._replace(error="mine") == plausible(Reply(1, {}, {}, "mine"), trial.terms, 2)


def test_figures_that_no_probe_has_are_an_error(trial: Trial) -> None:
    unlabelled = dataclasses.replace(trial.terms.config, method=METHODS["fedsimclr"].hyper(name="fedsimclr"))
    terms = trial.terms._replace(config=unlabelled)
    right = {"probe_accuracy": np.float64(0.5), "probe_by_percent/10": np.float64(0.5)}
    assert not evaluated(terms, right).error
    for path, value in (
        ("probe_accuracy", np.float64(math.nan)),
        ("probe_accuracy", np.float64(1.5)),
        ("probe_accuracy", np.zeros(2)),
        ("probe_accuracy", np.array("x")),
        ("probe_accuracy/10", np.float64(0.5)),
        ("probe_by_percent", np.float64(0.5)),
        ("id_accuracy", np.float64(1.0)),
    ):
        one_line(evaluated(terms, {**right, path: value}), f"'{path}'", "from 0 to 1")


@pytest.mark.slow
def test_an_evaluation_that_is_not_plausible_is_none_of_the_rounds_figures(
    trial: Trial, server: ServerPrograms, tmp_path: Path
) -> None:
    class Lies(Direct):
        def exchange(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
            first, second = super().exchange(requests, deadline)
            if requests[0].action == "evaluate":
                more = {path: leaf * (1e6 if "correct" in path else 1) for path, leaf in second.arrays.items()}
                second = second._replace(arrays=more)
            return [first, second._replace(facts={}) if requests[0].action == "finish" else second]

    said, folder = list[str](), tmp_path / "server"
    run_rounds(server, Lies(node_settings(trial, tmp_path)), folder, Policy(1.0), said.append)
    assert any(line.startswith("client 1 sends no figures: its evaluation has ") for line in said)
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(last["client_accuracy"]) == {"0"}
    other = tmp_path / "other"
    with pytest.raises(UserError, match=r"^client 1: its evaluation has .* samples right in 'source'"):
        run_rounds(server, Lies(node_settings(trial, other)), other / "server", Policy(), said.append)
