"""Weak and strong views, drawn anew for each minibatch, for consistency regularisation."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.corruption import WEAKLY_CORRUPTED, add_noise, corrupt
from fdgjax.data.augmentations.view import View, by_shape


class Views(NamedTuple):
    """A weak and a strong view."""

    weak: View
    strong: View


def unchanged_images(key: jax.Array, images: jax.Array) -> jax.Array:
    """The images unchanged."""
    del key
    return images


def shift(key: jax.Array, images: jax.Array) -> jax.Array:
    """Each image moved by up to an eighth of its side (at least a pixel), filled by reflection."""
    return random_crop(key, images)


def random_crop(key: jax.Array, images: jax.Array, size: int = 0) -> jax.Array:
    """A random crop of each image, `size` pixels a side (0 keeps the images' size). A side that is as long as the
    crop is first padded at both ends by an eighth (at least a pixel), by reflection."""
    height, width = images.shape[1:3]
    down, right = (max(side // 8, 1) if size in (0, side) else 0 for side in (height, width))
    padded = jnp.pad(images, ((0, 0), (down, down), (right, right), (0, 0)), mode="reflect")
    shape = (size or height, size or width, images.shape[3])
    corners = draw_places(
        key, len(images), *(whole - part + 1 for whole, part in zip(padded.shape[1:3], shape[:2], strict=True))
    )
    crop = lambda image, at: jax.lax.dynamic_slice(image, (at[0], at[1], 0), shape)  # noqa: E731
    return jax.vmap(crop)(padded, corners)


def cut_out(key: jax.Array, images: jax.Array) -> jax.Array:
    """Each image with a rectangle of half its sides, around a random pixel, set to zero (mid-grey)."""
    height, width = images.shape[1:3]
    centres = draw_places(key, len(images), height, width)
    rows = jnp.abs(jnp.arange(height)[None] - centres[:, :1]) <= height // 4
    columns = jnp.abs(jnp.arange(width)[None] - centres[:, 1:]) <= width // 4
    inside = rows[:, :, None] & columns[:, None, :]
    return jnp.where(inside[..., None], 0, images)


def shift_and_cut_out(key: jax.Array, images: jax.Array) -> jax.Array:
    """`shift`, then `cut_out`."""
    first, second = jax.random.split(key)
    return cut_out(second, shift(first, images))


def draw_places(key: jax.Array, count: int, height: int, width: int) -> jax.Array:
    """Random pixels, int32 `[count, 2]`."""
    sides = jnp.asarray([[height, width]], jnp.float32)
    return jnp.floor(jax.random.uniform(key, (count, 2)) * sides).astype(jnp.int32)


VIEWS: Mapping[str, Views] = {
    "none": Views(unchanged_images, unchanged_images),
    "shift": Views(
        by_shape(shift, add_noise), by_shape(shift_and_cut_out, partial(corrupt, probability=WEAKLY_CORRUPTED))
    ),
}
"""By name. Rows of tables and series, which cannot be shifted, get noise as the weak view and corruption as the strong
one."""
