"""How stored values become the numbers that a network sees.

Stored values stay as they are: numbers, NaN where a value is missing, and for a category its index. They become inputs
in each minibatch by an `Encoding`, which depends on nothing but the training samples:

    numeric column c        (x_c - mean_c) / deviation_c, and 0 where x_c is missing or the column is constant
    any column c            1 where x_c is missing, else 0; always 0 where no training sample lacks it
    categorical column c    1 for the category of x_c among its categories, else 0; all are 0 for another one, and for
                            one that no training sample has

in this order. Arrays that are no table are standardised along their last axis alone. Mean and deviation are those of
all training samples of all clients (`fdgjax.data.columns`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fdgjax.data.columns import ColumnStatistics, Layout, numeric
from fdgjax.data.pixels import as_floats

CONSTANT = 1e-12
"""A column is constant where its variance is at most this share of its mean square: what is left is rounding."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""And where its deviation is no normal number of float32, in which its scale would be infinite."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Encoding:
    """How stored values become inputs; the module's equations. Arrays are float32, with a seed axis for several seeds.

    mean, scale: mean and 1 / deviation of each numeric column, or entry of the last axis, in their order; a scale of 0
      for a constant one.
    missing: `[columns]`, 1 where a training sample lacks the column's value. known: `[categories of all columns]`, 1
      where a training sample has the category. Both are empty for arrays that are no table.
    layout: of the columns.
    """

    mean: Any
    scale: Any
    missing: Any
    known: Any
    layout: Layout = dataclasses.field(metadata={"static": True})

    def input_shape(self, stored: Sequence[int]) -> tuple[int, ...]:
        """The shape of one sample's inputs, from that of its stored values."""
        return (len(numeric(self.layout)) + len(self.layout) + sum(self.layout),) if self.layout else tuple(stored)

    def __call__(self, stored: jax.Array) -> jax.Array:
        """Stored values float32 `[..., columns]` -> inputs float32 `[..., inputs]`."""
        along = partial(jnp.reshape, shape=(1,) * (stored.ndim - 1) + (-1,))
        if not self.layout:
            return (stored - along(self.mean)) * along(self.scale)
        absent = jnp.isnan(stored)
        places = np.array(numeric(self.layout), int)
        numbers = (stored[..., places] - along(self.mean)) * along(self.scale)
        codes = jnp.where(absent, -1, stored).astype(jnp.int32)
        chosen = [jax.nn.one_hot(codes[..., i], count) for i, count in enumerate(self.layout) if count]
        flags = jnp.concatenate([absent.astype(jnp.float32), *chosen], axis=-1)
        seen = along(jnp.concatenate([self.missing, self.known]))
        return jnp.concatenate([jnp.where(absent[..., places], 0.0, numbers), flags * seen], axis=-1)


def as_inputs(stored: jax.Array, encoding: Encoding | None) -> jax.Array:
    """Stored samples as the model's inputs: bytes of images in [-1, 1], encoded values, or floats as they are."""
    floats = as_floats(stored)
    return floats if encoding is None else encoding(floats)


def standardising(statistics: ColumnStatistics, layout: Layout) -> Encoding:
    """The encoding by the statistics of all training samples."""
    own = np.array(numeric(layout), int) if layout else np.arange(len(statistics.present))
    count, mean, square = (array[own] for array in statistics[1:4])
    variance = square / np.maximum(count, 1)
    varies = (variance > CONSTANT * (variance + mean**2)) & (variance > SMALLEST**2)
    scale = np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
    missing = statistics.rows - statistics.present > 0 if layout else np.zeros(0)
    return encoding(mean, scale, missing, statistics.categories > 0, layout)


def unstandardised(layout: Layout) -> Encoding:
    """The encoding that looks at no sample: numbers as they are, 0 where they are missing, all categories known."""
    shape = len(numeric(layout))
    return encoding(np.zeros(shape), np.ones(shape), np.ones(len(layout)), np.ones(sum(layout)), layout)


def encoding(mean: ArrayLike, scale: ArrayLike, missing: ArrayLike, known: ArrayLike, layout: Layout) -> Encoding:
    """The encoding with these arrays, as float32."""
    mean, scale, missing, known = (np.asarray(array, np.float32) for array in (mean, scale, missing, known))
    return Encoding(mean, scale, missing, known, layout)


def to_plain(encoding: Encoding) -> dict[str, list[float]]:
    """An encoding without its layout as plain data, for JSON; float32 numbers are exact in it."""
    return {name: np.asarray(getattr(encoding, name)).tolist() for name in ("mean", "scale", "missing", "known")}


def from_plain(plain: Mapping[str, Sequence[float]], layout: Layout) -> Encoding:
    """The inverse of `to_plain`."""
    return encoding(**plain, layout=layout)
