"""Figures over seeds are means and sample standard deviations, nothing else."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation import Metrics
from fdgjax.run.records import TIMINGS, mean_figures, summarise, summarise_seeds

FRACTION = st.floats(0, 1)
NUMBERS = [name for name in Metrics._fields if name not in ("per_domain_accuracy", "client_accuracy", "calibration")]


def summary(seed: int, value: float, domains: dict[str, float]) -> dict[str, Any]:
    figures: dict[str, Any] = dict.fromkeys(NUMBERS, value) | {"per_domain_accuracy": domains}
    figures |= {"client_accuracy": {"0": value}, "calibration": {"count": [2 * value, value]}}
    about = {"method": "fedavg", "seed": seed, "selection": {"used": "last", "last": {"round": seed}}}
    return about | figures | dict.fromkeys(TIMINGS, 1.0)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(values=st.lists(st.tuples(FRACTION, FRACTION), min_size=2, max_size=5))
def test_means_and_sample_deviations(values: list[tuple[float, float]]) -> None:
    singles = [summary(seed, a, {"r0": b, "r15": a}) for seed, (a, b) in enumerate(values)]
    whole = summarise_seeds(singles, dict.fromkeys(TIMINGS, 7.0))
    column = np.asarray(values)
    mean = column.sum(axis=0) / len(values)
    std = np.sqrt(np.sum((column - mean) ** 2, axis=0) / (len(values) - 1))
    for name in NUMBERS:
        np.testing.assert_allclose((whole[name], whole["std"][name]), (mean[0], std[0]), atol=1e-12)
    assert whole["client_accuracy"] == {"0": whole["id_accuracy"]}
    np.testing.assert_allclose(whole["calibration"]["count"], (2 * mean[0], mean[0]), atol=1e-12)
    np.testing.assert_allclose(whole["std"]["calibration"]["count"], (2 * std[0], std[0]), atol=1e-12)
    by_domain = (whole["per_domain_accuracy"], whole["std"]["per_domain_accuracy"])
    np.testing.assert_allclose([figures["r0"] for figures in by_domain], (mean[1], std[1]), atol=1e-12)
    assert whole["seeds"] == list(range(len(values)))
    assert "seed" not in whole
    assert whole["method"] == "fedavg"
    assert [whole[key] for key in TIMINGS] == [7.0] * len(TIMINGS)
    for single in singles:
        own = whole["per_seed"][str(single["seed"])]
        assert own == {key: single[key] for key in (*Metrics._fields, "selection")}


def test_a_domain_some_seeds_lack_is_averaged_over_the_others() -> None:
    singles = [summary(0, 0.5, {"r0": 0.25, "r15": 1.0}), summary(1, 0.5, {"r0": 0.75})]
    whole = summarise_seeds(singles, dict.fromkeys(TIMINGS, 1.0))
    assert whole["per_domain_accuracy"] == {"r0": 0.5, "r15": 1.0}
    assert whole["std"]["per_domain_accuracy"]["r15"] is None


def test_a_round_that_was_not_evaluated_has_no_figures() -> None:
    assert mean_figures([{"round": 1, "train_loss": 0.5}] * 2) == {}


def test_figures_a_protocol_does_not_have_are_absent() -> None:
    absent = {"ood_accuracy", "ood_adapted_accuracy", "ood_loss", "attack_success"}
    absent |= {name for name in Metrics._fields if name.startswith("probe_")}
    records = [{"round": 1, "train_loss": 0.5}]
    records += [{key: value for key, value in summary(0, 0.5, {"r0": 0.5}).items() if key not in absent} | {"round": 2}]
    facts = {"method": "fedavg"}
    singles = [
        summarise(records, "validation", facts | {"seed": seed}, dict.fromkeys(TIMINGS, 1.0)) for seed in range(2)
    ]
    whole = summarise_seeds(singles, dict.fromkeys(TIMINGS, 1.0))
    for content in (*singles, whole, whole["std"], *whole["per_seed"].values()):
        assert content.keys() & set(Metrics._fields) == set(Metrics._fields) - absent
    assert singles[0]["selection"]["validation"].keys() == {
        *("round", "id_accuracy", "all_accuracy", "avg_accuracy", "looks_at")
    }
