"""The parts of a variance that splits and seeds have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.splits import shares


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
