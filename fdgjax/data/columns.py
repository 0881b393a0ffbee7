"""Columns of a table, or channels of other inputs, and the statistics of them that clients share.

Mean and deviation of all training samples follow from sums that each client makes of its own (`column_statistics`,
`merged`): Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Column(NamedTuple):
    """A column of a table. categories: the values of a categorical one, in the order of its indices; () for numbers."""

    name: str
    categories: tuple[str, ...] = ()


Layout = tuple[int, ...]
"""The number of categories of each column, 0 for a numeric one; () for arrays that are no table."""


def layout_of(columns: Sequence[Column]) -> Layout:
    """The layout of a table's columns."""
    return tuple(len(column.categories) for column in columns)


def numeric(layout: Layout) -> tuple[int, ...]:
    """The indices of the numeric columns."""
    return tuple(i for i, count in enumerate(layout) if not count)


class ColumnStatistics(NamedTuple):
    """Sums over samples that a client shares, float64; `merged` adds those of several clients.

    rows: number of samples. present: `[columns]`, values that are not missing. mean, square: `[columns]`, their mean
    and their sum of squared deviations from it; of a categorical column 0. categories: `[categories of all columns]`,
    the number of samples of each; a value of another category, -1, is present, and counts for none. For arrays that are
    no table, a column is an entry of the last axis, and each position along the other axes counts as a value.
    """

    rows: np.ndarray
    present: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    categories: np.ndarray


def column_statistics(stored: np.ndarray, layout: Layout) -> ColumnStatistics:
    """The statistics of samples `[samples, ..., columns]`."""
    values = np.asarray(stored, np.float64).reshape(-1, stored.shape[-1])
    present = ~np.isnan(values)
    count = present.sum(axis=0).astype(np.float64)
    numbers = np.array([not categories for categories in layout] or [True] * values.shape[1])
    filled = np.where(present & numbers, values, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    square = (np.where(present & numbers, filled - mean, 0.0) ** 2).sum(axis=0)
    known = present & (values >= 0)
    counted = [
        np.bincount(values[known[:, i], i].astype(int), minlength=number).astype(np.float64)
        for i, number in enumerate(layout)
        if number
    ]
    return ColumnStatistics(np.array(float(len(values))), count, mean, square, np.concatenate([np.zeros(0), *counted]))


def merged(each: Sequence[ColumnStatistics]) -> ColumnStatistics:
    """The statistics of all samples together, from those of disjoint parts."""
    rows, count, categories = (
        np.sum([getattr(one, name) for one in each], axis=0) for name in ("rows", "present", "categories")
    )
    counts, means = np.stack([one.present for one in each]), np.stack([one.mean for one in each])
    mean = (counts * means).sum(axis=0) / np.maximum(count, 1)
    square = np.sum([one.square for one in each], axis=0) + (counts * (means - mean) ** 2).sum(axis=0)
    return ColumnStatistics(rows, count, mean, square, categories)
