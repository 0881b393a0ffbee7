"""The type of a view."""

from collections.abc import Callable

import jax

View = Callable[[jax.Array, jax.Array], jax.Array]
"""A random transformation of a batch: `(key, images [batch, height, width, channels]) -> images`."""
