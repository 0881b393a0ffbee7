"""Conformal sets cover as often as they say, by simulation, and grow with their coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation.conformal import prediction_sets, scores_of, upper_quantile


@pytest.mark.parametrize(("n", "coverage", "wanted"), [(19, 0.9, 18 / 20), (15, 0.9, 15 / 16), (8, 0.9, 1.0)])
def test_sets_cover_exchangeable_images_with_the_exact_probability(n: int, coverage: float, wanted: float) -> None:
    """k / (n + 1) for scores that are never equal, whatever the model is worth."""
    rng, draws, inside = np.random.default_rng(n), 4000, 0
    for _ in range(draws):
        logits, labels = rng.normal(size=(n + 1, 5)), rng.integers(5, size=n + 1)
        logits[np.arange(n + 1), labels] += 1
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        q = upper_quantile(scores_of(p[:n], labels[:n]), coverage)
        inside += int(prediction_sets(p[n:], q)[0, labels[n]])
    assert inside / draws == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / draws))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(1, 30), st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.integers(0, 99))
def test_sets_are_nested_in_their_coverage(n: int, one: float, other: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, scores = rng.dirichlet(np.ones(4), size=20), rng.random(n)
    smaller, larger = (prediction_sets(p, upper_quantile(scores, share)) for share in sorted((one, other)))
    assert not np.any(smaller & ~larger)
    # The k-th smallest score is inside, too.
    labels = rng.integers(4, size=20)
    inside = prediction_sets(p, upper_quantile(scores_of(p, labels), one))[np.arange(20), labels]
    assert inside.sum() == min(20, math.ceil(21 * one))


def test_too_few_images_promise_nothing_but_all_classes() -> None:
    assert upper_quantile(np.arange(8.0), 0.9) == math.inf
    assert upper_quantile(np.arange(9.0)[::-1], 0.9) == 8
    assert upper_quantile(np.arange(99.0), 0.07) == 6, "100 * 0.07 is a little more than 7"
    assert prediction_sets(np.ones((2, 3)) / 3, math.inf).all()
