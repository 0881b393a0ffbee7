"""Columns as inputs: federated statistics are the pooled ones, and the encoding looks at training samples alone."""

import json

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fdgjax.data.columns import Column, column_statistics, layout_of, merged
from fdgjax.data.encoding import Encoding, from_plain, standardising, to_plain, unstandardised

COLUMNS = (Column("age"), Column("sex", ("f", "m")), Column("dose"), Column("place", ("a", "b", "c")))
LAYOUT = layout_of(COLUMNS)


def table(rng: np.random.Generator, rows: int, missing: float = 0.2) -> np.ndarray:
    numbers = rng.normal(50, 12, (rows, 2))
    stored = np.stack([numbers[:, 0], rng.integers(0, 2, rows), numbers[:, 1], rng.integers(0, 3, rows)], axis=1)
    stored[rng.random(stored.shape) < missing] = np.nan
    return stored.astype(np.float32)


def encoded(encoding: Encoding, stored: np.ndarray) -> np.ndarray:
    return np.asarray(encoding(jnp.asarray(stored)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(0, 40))
def test_merged_statistics_are_those_of_the_pooled_rows_however_they_are_divided(
    seed: int, parts: int, more: int
) -> None:
    rng = np.random.default_rng(seed)
    pooled = table(rng, parts + more)
    owner = rng.integers(0, parts, len(pooled))
    each = [column_statistics(pooled[owner == part], LAYOUT) for part in range(parts)]
    for found, expected in zip(merged(each), column_statistics(pooled, LAYOUT), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(arrays(np.float32, (7, 3), elements=st.floats(-1e6, 1e6, width=32)))
def test_statistics_are_those_that_numpy_has_in_float64(values: np.ndarray) -> None:
    found = column_statistics(values, ())
    exact = values.astype(np.float64)
    np.testing.assert_allclose(found.mean, exact.mean(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.square, exact.var(axis=0) * len(exact), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_a_column_does_not_matter(unit: float) -> None:
    values = np.random.default_rng(0).normal(3, 1, (20, 2))
    plain, other = (standardising(column_statistics(stored, ()), ()) for stored in (values, unit * values))
    np.testing.assert_allclose(other.scale * unit, plain.scale, rtol=1e-6)
    np.testing.assert_allclose(other.mean / unit, plain.mean, rtol=1e-6)


def test_values_of_unknown_categories_are_present_and_counted_for_none() -> None:
    stored = np.array([[1, -1, 5, 2], [3, 1, 6, -1], [5, np.nan, 7, 2]], np.float32)
    found = column_statistics(stored, LAYOUT)
    assert found.present.tolist() == [3, 2, 3, 3]
    assert found.categories.tolist() == [0, 1, 0, 0, 2]


@pytest.mark.slow
def test_inputs_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    train, new = table(rng, 50, missing=0), table(rng, 9, missing=0)
    inputs = encoded(standardising(column_statistics(train, LAYOUT), LAYOUT), new)
    numbers = StandardScaler().fit(train[:, [0, 2]]).transform(new[:, [0, 2]])
    categories = OneHotEncoder(categories=[[0, 1], [0, 1, 2]], sparse_output=False).fit_transform(new[:, [1, 3]])
    np.testing.assert_allclose(inputs, np.hstack([numbers, np.zeros((9, 4)), categories]), atol=1e-5)


@pytest.mark.slow
def test_a_missing_value_is_the_mean_and_marked_only_where_training_rows_lack_it() -> None:
    train = np.array([[1, 0, np.nan, 2], [3, 1, 5, 2], [5, 0, 7, 2]], np.float32)
    encoding = standardising(column_statistics(train, LAYOUT), LAYOUT)
    inputs = encoded(encoding, np.full((1, 4), np.nan, np.float32))
    assert inputs.shape == (1, 2 + 4 + 5)
    np.testing.assert_array_equal(inputs[0], [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])


@pytest.mark.slow
def test_categories_that_no_training_row_has_are_as_none_and_so_are_unknown_ones() -> None:
    train = np.array([[1, 0, 5, 2], [3, 1, 6, 2]], np.float32)
    encoding = standardising(column_statistics(train, LAYOUT), LAYOUT)
    new = np.array([[1, 0, 5, 0], [1, -1, 5, -1], [1, 1, 5, 2]], np.float32)
    places = encoded(encoding, new)[:, -5:]
    np.testing.assert_array_equal(places, [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 1]])


def test_a_constant_column_is_zero_for_any_value() -> None:
    train = np.array([[7.1, 2.0], [7.1, 3.0], [7.1, 4.0]], np.float32)
    encoding = standardising(column_statistics(train, ()), ())
    np.testing.assert_array_equal(encoded(encoding, np.array([[7.1, 3.0], [900.0, 3.0]], np.float32)), np.zeros((2, 2)))


@pytest.mark.parametrize("step", [1e-45, 1e-39])
def test_a_column_that_varies_by_less_than_float32_can_divide_by_is_constant(step: float) -> None:
    train = np.array([[0.0], [step]], np.float32)
    assert train.std(dtype=np.float64) > 0
    assert standardising(column_statistics(train, ()), ()).scale == 0


def test_a_series_is_standardised_by_channel_over_samples_and_time() -> None:
    series = np.random.default_rng(1).normal([3, -2], [5, 0.1], (4, 30, 2)).astype(np.float32)
    inputs = encoded(standardising(column_statistics(series, ()), ()), series)
    np.testing.assert_allclose(inputs.mean(axis=(0, 1)), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std(axis=(0, 1)), 1, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["standardising", "unstandardised"])
def test_an_encoding_is_read_back_from_json_exactly_and_may_be_stacked(made: str) -> None:
    train = table(np.random.default_rng(2), 30)
    one = standardising(column_statistics(train, LAYOUT), LAYOUT) if made == "standardising" else unstandardised(LAYOUT)
    found = from_plain(json.loads(json.dumps(to_plain(one))), LAYOUT)
    np.testing.assert_array_equal(encoded(found, train), encoded(one, train))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), one, found)
    each = jax.vmap(lambda encoding: encoding(train))(stacked)
    np.testing.assert_array_equal(each[1], encoded(one, train))
    assert one.input_shape(train.shape[1:]) == each.shape[2:]
