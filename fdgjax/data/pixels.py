"""Conversion of image bytes to floats."""

import jax
import jax.numpy as jnp


def as_floats(images: jax.Array) -> jax.Array:
    """uint8 images as float32 in [-1, 1]; converted only where they are used, so that they are stored as bytes.

    Floats, of tables, series, arrays or the features of a frozen trunk, are returned unchanged.
    """
    return images.astype(jnp.float32) / 127.5 - 1.0 if images.dtype == jnp.uint8 else images
