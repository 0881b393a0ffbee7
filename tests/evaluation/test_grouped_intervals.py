"""Intervals of grouped samples count groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation import resampled
from fdgjax.evaluation.probabilities import SMALL, Figuring, Judged, intervals
from fdgjax.evaluation.probability_figures import interval_key
from fdgjax.evaluation.resampled import resamples_of_groups


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(2, 4), st.integers(0, 20), st.integers(1, 5), st.integers(0, 10**6))
def test_resamples_of_groups_have_them_whole_and_every_class(classes: int, more: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.append(np.arange(classes), rng.integers(0, classes, more)))
    groups = rng.permutation(np.arange(len(labels)) // size)
    drawn = resamples_of_groups(labels, groups, 50, rng)
    if drawn is None:
        return
    counts = np.concatenate(list(drawn.parts()))
    assert counts.shape == (50, len(labels))
    for group in np.unique(groups):
        own = counts[:, groups == group]
        assert (own == own[:, :1]).all()
    for label in np.unique(labels):
        assert counts[:, labels == label].sum(axis=1).min() > 0
    one_of_each = np.unique(groups, return_index=True)[1]
    assert (counts[:, one_of_each].sum(axis=1) == len(one_of_each)).all()


def test_many_classes_in_few_groups_have_no_resamples() -> None:
    labels = np.arange(40) // 2
    assert resamples_of_groups(labels, labels, 50, np.random.default_rng(0)) is None
    p = np.full((40, 20), 0.05)
    found = intervals(Figuring(("log_loss",)), None, {"a": [Judged(labels, 0 * labels, p, labels)]}, 0)
    assert found == {interval_key("log_loss"): {}}


def test_groups_of_one_predicted_alike_are_as_many_samples_as_groups() -> None:
    """Repeated samples make no interval narrower: of shares the same, of others the same but for the draws."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    p = np.stack([1 - (score := 1 / (1 + np.exp(-rng.normal(labels, 1)))), score], axis=1)
    how = Figuring(("sensitivity", "brier", "auroc"), resamples=4000)
    alone = intervals(how, 0.5, {"a": [Judged(labels, 0 * labels, p)]}, 0)
    repeated, groups = (np.repeat(each, 8, axis=0) for each in (labels, np.arange(60)))
    many = Judged(repeated, 0 * repeated, np.repeat(p, 8, axis=0), groups)
    together = intervals(how, 0.5, {"a": [many]}, 0)
    apart = intervals(how, 0.5, {"a": [many._replace(groups=None)]}, 0)
    assert together[interval_key("sensitivity")] == alone[interval_key("sensitivity")]
    for name in map(interval_key, how.names):
        width, of_groups, of_samples = (float(np.ptp(each[name]["a"])) for each in (alone, together, apart))
        assert of_groups == pytest.approx(width, rel=0.1)
        assert of_samples < 0.5 * width


def test_many_samples_of_few_groups_have_intervals_whose_resamples_are_counted_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 40)
    labels = rng.integers(0, 2, len(groups))
    score = 1 / (1 + np.exp(-rng.normal(labels + rng.normal(0, 1, 30)[groups], 1)))
    one = Judged(labels, 0 * labels, np.stack([1 - score, score], axis=1), groups)
    how = Figuring(("auroc", "f1", "brier"))
    assert len(labels) > SMALL
    found = intervals(how, 0.5, {"a": [one]}, 0)
    assert all(len(found[interval_key(name)]["a"]) == 2 for name in how.names)
    monkeypatch.setattr(resampled, "AT_ONCE", 7 * len(labels))
    for name, each in intervals(how, 0.5, {"a": [one]}, 0).items():
        np.testing.assert_allclose(each["a"], found[name]["a"], rtol=1e-12)
    groups_of_one = one._replace(groups=np.arange(len(groups)))
    assert intervals(how, 0.5, {"a": [groups_of_one]}, 0) == {interval_key(name): {} for name in how.names}
