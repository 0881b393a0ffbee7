"""The calibration error of counts by confidence."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.evaluation import Tally, expected_calibration_error

COUNTS = st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1), st.floats(0, 1)), min_size=15, max_size=15)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=40)
@given(bins=COUNTS.filter(lambda bins: sum(n for n, _, _ in bins) > 0), cut=st.integers(0, 20))
def test_calibration_pools_models(bins: list[tuple[int, float, float]], cut: int) -> None:
    """The error is that of all samples together, however they are shared between models."""
    count = np.asarray([n for n, _, _ in bins], np.float64)
    right = np.asarray([round(n * a) for n, a, _ in bins], np.float64)
    confidence = np.asarray([n * c for n, _, c in bins])
    nothing: Any = np.zeros(1)

    def tally(count: Any, right: Any, confidence: Any) -> Tally:
        return Tally(nothing, nothing, count, right, confidence, nothing)

    whole = expected_calibration_error(tally(count, right, confidence))
    share = cut / 20
    halves = [np.stack([share * x, (1 - share) * x]) for x in (count, right, confidence)]
    np.testing.assert_allclose(expected_calibration_error(tally(*halves)), whole, rtol=1e-9, atol=1e-12)
    some = count > 0
    gaps = np.abs(right[some] / count[some] - confidence[some] / count[some])
    np.testing.assert_allclose(whole, np.sum(count[some] / count.sum() * gaps), rtol=1e-9, atol=1e-12)
