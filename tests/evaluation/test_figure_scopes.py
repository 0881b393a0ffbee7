"""Of which samples a figure of probabilities is: clients', pooled, domains', and whose threshold decides."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

from fdgjax.data.federation import Partition
from fdgjax.data.sources.domains import Domains
from fdgjax.evaluation.metrics import figure_keys
from fdgjax.evaluation.probabilities import (
    Figuring,
    Probabilities,
    measure_probabilities,
)
from fdgjax.evaluation.probability_figures import (
    FIGURES,
    decision_threshold,
    interval_key,
)
from tests.evaluation.test_probability_figures import value


def split_of(rng: np.random.Generator, sizes: list[int], labels: np.ndarray | None = None) -> tuple[Domains, Partition]:
    """Clients 0 and 1 with validation samples of the domains 0 and 1, and an unseen domain 2."""
    domains = np.repeat(np.arange(3), sizes)
    labels = rng.integers(0, 2, len(domains)) if labels is None else labels
    data = Domains(np.zeros((len(domains), 1), np.float32), labels, domains, ("a", "b", "c"), ("well", "ill"))
    rows = [np.flatnonzero(domains == d) for d in range(3)]
    none = [np.arange(0)] * 2
    return data, Partition(none, rows[:2], none, rows[2], np.arange(0))


def logarithms(rng: np.random.Generator, models: int, longest: int) -> np.ndarray:
    return np.log(rng.dirichlet([1, 1], (models, longest))).astype(np.float32)


def test_scopes_are_means_pools_and_domains() -> None:
    """Two clients of one domain each, and two models for the unseen domain, padded rows included."""
    rng, sizes = np.random.default_rng(3), [12, 30, 25]
    data, part = split_of(rng, sizes)
    found = Probabilities(logarithms(rng, 2, 33), logarithms(rng, 2, 33), logarithms(rng, 2, 28))
    record = measure_probabilities(Figuring(("auroc", "log_loss")), found, data, part, 0)
    assert set(record) <= set(figure_keys())
    lengths = {"source": sizes[:2], "target": [25, 25]}
    exact = {
        (name, i): softmax(getattr(found, name)[i, : own[i]], 1) for name, own in lengths.items() for i in range(2)
    }
    labels = [data.labels[data.domains == d] for d in range(3)]
    for name in ("auroc", "log_loss"):
        own = [value(name, labels[i], exact["source", i]) for i in range(2)]
        unseen = [value(name, labels[2], exact["target", i]) for i in range(2)]
        every = value(name, np.concatenate(labels[:2]), np.concatenate([exact["source", 0], exact["source", 1]]))
        domains = {"a": own[0], "b": own[1], "c": float(np.mean(unseen))}
        worst: Callable[..., float] = min if FIGURES[name].larger else max
        assert record[f"id_{name}"] == pytest.approx(np.mean(own), abs=1e-6)
        assert record[f"id_all_{name}"] == pytest.approx(every, abs=1e-6)
        assert record[f"ood_{name}"] == pytest.approx(np.mean(unseen), abs=1e-6)
        assert record[f"per_domain_{name}"] == pytest.approx(domains, abs=1e-6)
        assert record[f"worst_domain_{name}"] == pytest.approx(worst(domains.values()), abs=1e-6)
        assert record[f"client_{name}"] == pytest.approx({"0": own[0], "1": own[1]}, abs=1e-6)
        assert f"avg_{name}" not in record
        assert set(record[interval_key(name)]) == {"a", "b", "c"}
    np.testing.assert_allclose(sum(record["per_domain_calibration"]["c"]["count"]), 50)


def test_the_threshold_is_of_validation_samples_alone() -> None:
    rng = np.random.default_rng(4)
    data, whole = split_of(rng, [20, 30, 8])
    part = whole._replace(
        validation=[rows[::2] for rows in whole.validation], test=[rows[1::2] for rows in whole.validation]
    )
    found = Probabilities(logarithms(rng, 2, 15), logarithms(rng, 2, 15), logarithms(rng, 1, 8))
    pairs = zip(found.source, part.validation, strict=True)
    pooled = np.concatenate([softmax(one[: len(rows)], 1) for one, rows in pairs])
    wanted = decision_threshold(data.labels[np.concatenate(part.validation)], pooled)
    record = measure_probabilities(Figuring(("f1",)), found, data, part, 0)
    assert record["decision_threshold"] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
def test_a_domain_of_one_class_and_an_empty_one_are_left_out() -> None:
    """Nothing that JSON cannot hold, and nothing of the unseen domain moves the threshold."""
    rng, how = np.random.default_rng(5), Figuring(tuple(FIGURES))
    labels = np.concatenate([np.ones(6, int), rng.permutation([0, 1] * 5), rng.permutation([0, 1] * 4)])
    data, part = split_of(rng, [6, 10, 8], labels)
    found = Probabilities(logarithms(rng, 2, 10), logarithms(rng, 2, 10), logarithms(rng, 1, 8))
    record = measure_probabilities(how, found, data, part, 0)
    undecided = measure_probabilities(how._replace(decides=False), found, data, part, 0)
    lost = {name for name, figure in FIGURES.items() if figure.thresholded}
    assert {key for key in record if key not in undecided} >= {"decision_threshold", *(f"ood_{name}" for name in lost)}
    assert undecided["ood_auroc"] == record["ood_auroc"]
    json.dumps(record, allow_nan=False)
    assert set(record["per_domain_auroc"]) == set(record["per_domain_specificity"]) == {"b", "c"}
    assert set(record["per_domain_log_loss"]) == set(record["per_domain_sensitivity"]) == {"a", "b", "c"}
    assert record["id_auroc"] == record["client_auroc"]["1"]
    other = data._replace(labels=np.where(data.domains == 2, 1 - data.labels, data.labels))
    changed = measure_probabilities(how, found, other, part, 0)
    assert changed["decision_threshold"] == record["decision_threshold"]
    nothing = measure_probabilities(how, found, data, part._replace(validation=[np.arange(0)] * 2), 0)
    json.dumps(nothing, allow_nan=False)
    assert "decision_threshold" not in nothing
    assert "ood_sensitivity" not in nothing
    assert set(nothing["per_domain_auroc"]) == {"c"}
    broken = measure_probabilities(how, jax_nan(found), data, part, 0)
    assert not broken


def jax_nan(found: Probabilities) -> Probabilities:
    return Probabilities(*(np.full_like(leaf, np.nan) for leaf in found))
