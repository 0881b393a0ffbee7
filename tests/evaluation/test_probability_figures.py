"""Laws of the figures of probabilities, of their resamples, of the threshold and of the curve of calibration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from fdgjax.evaluation.figure_kinds import larger_is_better
from fdgjax.evaluation.probabilities import (
    SMALL,
    Figuring,
    Judged,
    curve,
    intervals,
)
from fdgjax.evaluation.probability_figures import (
    FIGURES,
    decision_threshold,
    figure_in,
    figure_of,
    interval_key,
    names_in,
)
from fdgjax.evaluation.resampled import of_each, resamples_of

EACH = settings(derandomize=True, deadline=None, max_examples=40)
LEVELS = np.linspace(0.02, 0.98, 9)


@st.composite
def samples(draw: st.DrawFn, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Labels of every class, and probabilities with ties."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = rng.permutation(np.append(np.arange(classes), rng.integers(0, classes, draw(st.integers(0, 20)))))
    if classes == 2:
        p = rng.choice(LEVELS, len(labels))
        return labels, np.stack([1 - p, p], axis=1)
    return labels, rng.dirichlet(np.ones(classes), len(labels))


BOTH = st.one_of(samples(2), samples(4))


def value(name: str, labels: np.ndarray, p: np.ndarray, threshold: float | None = 0.5) -> float:
    found = figure_of(FIGURES[name], labels, p, threshold)
    assert found is not None
    return found


def usable(p: np.ndarray) -> list[str]:
    return [name for name, figure in FIGURES.items() if p.shape[1] == 2 or not figure.binary]


@pytest.mark.slow
@EACH
@given(samples())
def test_auroc_is_the_share_of_pairs_in_order_and_monotone_maps_keep_it(given_: tuple) -> None:
    """Mann and Whitney, 1947; a strictly increasing map of probabilities changes no order."""
    labels, p = given_
    positive, negative = p[labels == 1, 1][:, None], p[labels == 0, 1][None]
    pairs = np.mean((positive > negative) + 0.5 * (positive == negative))
    assert value("auroc", labels, p) == pytest.approx(pairs)
    mapped = p[:, 1] ** 3 / (p[:, 1] ** 3 + (1 - p[:, 1]) ** 2)
    assert value("auroc", labels, np.stack([1 - mapped, mapped], axis=1)) == pytest.approx(pairs)
    assert value("auroc", 1 - labels, p[:, ::-1]) == pytest.approx(pairs)


@pytest.mark.slow
@settings(EACH, max_examples=20)
@given(BOTH, st.integers(0, 10**6))
def test_the_order_of_samples_does_not_matter(given_: tuple, seed: int) -> None:
    labels, p = given_
    order = np.random.default_rng(seed).permutation(len(labels))
    for name in usable(p):
        assert value(name, labels[order], p[order]) == pytest.approx(value(name, labels, p)), name


@pytest.mark.slow
@EACH
@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 10**6))
def test_log_loss_and_brier_are_least_at_the_true_probabilities(counts: list[int], seed: int) -> None:
    """Strictly proper scores: of samples with given shares of classes, no constant prediction is as good as these."""
    labels, share = np.repeat(np.arange(len(counts)), counts), np.array(counts) / sum(counts)
    other = np.random.default_rng(seed).dirichlet(np.ones(len(counts)))
    for name in ("log_loss", "brier"):
        assert not FIGURES[name].larger
        own = value(name, labels, np.tile(share, (len(labels), 1)))
        assert own <= value(name, labels, np.tile(other, (len(labels), 1))) + 1e-12, name
    entropy = -sum(p * math.log(p) for p in share)
    assert value("log_loss", labels, np.tile(share, (len(labels), 1))) == pytest.approx(entropy)


@pytest.mark.slow
@settings(EACH, max_examples=12)
@given(BOTH, st.integers(0, 10**6))
def test_resamples_have_the_figures_of_the_samples_that_they_repeat(given_: tuple, seed: int) -> None:
    """All at once equals scikit-learn on the repeated samples, one resample after another."""
    labels, p = given_
    counts = resamples_of(labels, 6, np.random.default_rng(seed))
    assert (counts.sum(axis=1) == len(labels)).all()
    for name in usable(p):
        resampled = FIGURES[name].resampled
        assert resampled
        each = [value(name, np.repeat(labels, row), np.repeat(p, row, axis=0)) for row in counts]
        for found in (resampled, of_each(FIGURES[name].of)):
            np.testing.assert_allclose(found(labels, p, 0.5, counts), each, atol=1e-12, err_msg=name)


@EACH
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_grades_that_are_further_off_count_by_the_square_and_correlations_are_of_all_classes(
    further: list[tuple[int, int]],
) -> None:
    """Kappa by Cohen's formula over pairs of samples; MCC as the correlation of one-hot vectors."""
    pairs = [(grade, grade) for grade in range(5)] + further
    labels, decided = (np.array(each) for each in zip(*pairs, strict=True))
    p = np.eye(5)[decided]
    by_chance = np.mean((labels[:, None] - decided) ** 2)
    assert value("quadratic_kappa", labels, p) == pytest.approx(1 - np.mean((labels - decided) ** 2) / by_chance)
    true, found = (np.eye(5)[each] - np.eye(5)[each].mean(axis=0) for each in (labels, decided))
    correlation = np.sum(true * found) / math.sqrt(np.sum(true**2) * np.sum(found**2))
    assert value("mcc", labels, p) == pytest.approx(correlation)


@EACH
@given(BOTH, st.integers(0, 10**6))
def test_no_class_vanishes_from_a_resample(given_: tuple, seed: int) -> None:
    labels, _ = given_
    counts = resamples_of(labels, 50, np.random.default_rng(seed))
    for label in np.unique(labels):
        assert counts[:, labels == label].sum(axis=1).min() > 0


def test_resamples_without_a_rare_class_are_not_stratified() -> None:
    """Where no class can vanish, the number of samples of a class varies as the samples do."""
    labels = np.repeat([0, 1], 60)
    share = resamples_of(labels, 4000, np.random.default_rng(0))[:, labels == 1].sum(axis=1) / len(labels)
    assert np.std(share) == pytest.approx(math.sqrt(0.25 / 120), rel=0.05)


@pytest.mark.slow
@EACH
@given(BOTH, st.integers(0, 10**6))
def test_an_interval_has_the_figure_in_it_and_is_the_same_for_the_same_seed(given_: tuple, seed: int) -> None:
    """For means and for AUROC, whose resamples have the figure as their mean."""
    labels, p = given_
    how = Figuring(("auroc", "log_loss", "brier", "balanced_accuracy"), resamples=500)
    domains = {"north": [Judged(labels, np.zeros_like(labels), p)]}
    found = intervals(how, 0.5, domains, seed)
    assert found == intervals(how, 0.5, domains, seed)
    for name in how.names:
        if "north" in found[interval_key(name)]:
            low, high = found[interval_key(name)]["north"]
            assert low < high
            assert low - 1e-9 <= value(name, labels, p) <= high + 1e-9, name


def test_few_samples_or_a_perfect_figure_make_nothing_certain() -> None:
    """At the boundary no resample differs: shares have Wilson's interval, others none."""
    labels = np.repeat([0, 1], [12, 3])
    p = np.stack([1 - labels * 0.8, labels * 0.8], axis=1)
    worse = p.copy()
    worse[-1] = 1, 0
    how = Figuring(("auroc", "balanced_accuracy", "sensitivity", "specificity", "brier"), resamples=200)
    found = intervals(how, 0.5, {"a": [Judged(labels, np.zeros_like(labels), p)]}, 0)
    got = {name: found[interval_key(name)].get("a") for name in how.names}
    assert (got["auroc"], got["balanced_accuracy"]) == (None, None)
    # n / (n + z^2), of all n recognised.
    for name, n in (("sensitivity", 3), ("specificity", 12)):
        assert got[name] == pytest.approx([n / (n + 1.959964**2), 1.0])
    both = [Judged(labels, np.zeros_like(labels), one) for one in (p, worse)]
    found = intervals(how, 0.5, {"a": both}, 0)
    # The mean of two models, 5 of 6: in whole samples 2 of 3, whose interval Wilson's formula gives.
    middle, half = ((2 / 3 + 1.959964**2 / 6) / (1 + 1.959964**2 / 3), 0.5 * 1.959964)
    width = half * math.sqrt(4 * (2 / 9) / 3 + 1.959964**2 / 9) / (1 + 1.959964**2 / 3)
    assert found[interval_key("sensitivity")]["a"] == pytest.approx([middle - width, middle + width], abs=1e-6)
    assert found[interval_key("auroc")]["a"][0] < 1


@pytest.mark.slow
def test_an_interval_covers_the_figure_of_further_samples() -> None:
    """Of 300 draws of 100 samples, 95 % of the intervals hold the AUROC of all: Phi(1 / sqrt(2)) of two normals."""
    rng, truth, hits = np.random.default_rng(1), 0.5 * (1 + math.erf(0.5)), 0
    for seed in range(300):
        labels = rng.integers(0, 2, 100)
        score = 1 / (1 + np.exp(-rng.normal(labels, 1)))
        one = Judged(labels, np.zeros_like(labels), np.stack([1 - score, score], axis=1))
        low, high = intervals(Figuring(("auroc",), resamples=200), None, {"a": [one]}, seed)[interval_key("auroc")]["a"]
        hits += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.98


@pytest.mark.slow
@settings(EACH, max_examples=15)
@given(samples(), st.sampled_from([0.3, 0.8, 0.95, 1.0]))
def test_the_threshold_has_the_largest_index_or_the_asked_sensitivity(given_: tuple, asked: float) -> None:
    labels, p = given_
    every = np.unique(p[:, 1])

    def both(threshold: float | None) -> tuple[float, float]:
        return value("sensitivity", labels, p, threshold), value("specificity", labels, p, threshold)

    best = decision_threshold(labels, p)
    assert best in every
    assert sum(both(best)) == pytest.approx(max(sum(both(one)) for one in every))
    reached = decision_threshold(labels, p, asked)
    assert reached in every
    assert both(reached)[0] >= asked - 1e-9
    assert all(both(one)[0] < asked for one in every[every > reached])


def test_what_has_no_value_is_none() -> None:
    p = np.array([[0.3, 0.7], [0.6, 0.4]])
    ones, mixed = np.array([1, 1]), np.array([0, 1])
    none = {name for name, figure in FIGURES.items() if figure_of(figure, ones, p, 0.5) is None}
    assert none == set(FIGURES) - {"sensitivity", "log_loss", "brier"}
    without = {name for name, figure in FIGURES.items() if figure_of(figure, mixed, p, None) is None}
    assert without == {name for name, figure in FIGURES.items() if figure.thresholded}
    three = np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    lacking = {name for name, figure in FIGURES.items() if figure_of(figure, mixed, three, None) is None}
    assert lacking == set(FIGURES) - {"log_loss", "brier"}
    for figure in FIGURES.values():
        assert figure_of(figure, mixed, np.full((2, 2), np.nan), 0.5) is None
        assert figure_of(figure, mixed[:0], p[:0], 0.5) is None
    assert decision_threshold(ones, p) is None


def test_of_equal_thresholds_the_largest_is_taken() -> None:
    """Youden's index is .2 at .9 (.3 - .1) and at .5 (.5 - .3), but for rounding."""
    labels = np.repeat([1, 0, 1, 0, 1, 0], [3, 1, 2, 2, 5, 7])
    positive = np.repeat([0.9, 0.9, 0.5, 0.5, 0.1, 0.1], [3, 1, 2, 2, 5, 7])
    p = np.stack([1 - positive, positive], 1)
    assert decision_threshold(labels, p) == decision_threshold(labels, p, sensitivity=1 - 0.7) == 0.9


@EACH
@given(samples())
def test_the_curve_is_scikit_learns(given_: tuple) -> None:
    labels, p = given_
    found = curve(Judged(labels, labels, p))
    assert found is not None
    count, positive, total = (np.array(found[name]) for name in ("count", "positive", "probability"))
    share, mean = calibration_curve(labels, p[:, 1], n_bins=10)
    np.testing.assert_allclose(positive[count > 0] / count[count > 0], share)
    np.testing.assert_allclose(total[count > 0] / count[count > 0], mean)


def test_names_and_directions() -> None:
    assert names_in(" auroc, brier,,auroc ") == ("auroc", "brier")
    assert figure_in("worst_domain_log_loss") == "log_loss"
    assert figure_in("per_domain_auroc.north") == "auroc"
    assert figure_in("id_accuracy") == ""
    assert larger_is_better("ood_auroc")
    assert larger_is_better("ood_accuracy")
    assert not larger_is_better("ood_log_loss")
    assert not larger_is_better("ood_loss")


def test_large_domains_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    labels, score = rng.integers(0, 2, SMALL + 1), rng.random(SMALL + 1)
    one = Judged(labels, np.zeros_like(labels), np.stack([1 - score, score], axis=1))
    assert intervals(Figuring(("brier",)), None, {"a": [one]}, 0) == {interval_key("brier"): {}}
    assert intervals(Figuring(("brier",), resamples=0), None, {"a": [one.at(np.arange(9))]}, 0) == {
        interval_key("brier"): {}
    }
