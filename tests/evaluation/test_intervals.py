"""Wilson's interval."""

import pytest
from scipy.stats import binomtest

from fdgjax.evaluation.intervals import wilson


@pytest.mark.parametrize(("right", "n"), [(0, 18), (1, 18), (17, 18), (18, 18), (9, 18), (263, 299), (1, 1)])
def test_the_interval_is_scipys(right: int, n: int) -> None:
    theirs = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
