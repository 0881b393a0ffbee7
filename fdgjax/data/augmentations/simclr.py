"""Random views of images for self-supervised learning, on the device: each a pure function of a batch and a key.

Images are float32 `[batch, height, width, channels]` in [-1, 1], as the engine provides them. Each random function
draws parameters for every image and passes them to a deterministic function, which is checked against Pillow. Images
with one channel have no hue and no saturation.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.view import View

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey value (ITU-R 601), as in Pillow."""
ATTEMPTS = 10


class Box(NamedTuple):
    """Rectangles, float32 `[batch]` each, in pixels."""

    top: jax.Array
    left: jax.Array
    height: jax.Array
    width: jax.Array


def simclr_view(
    key: jax.Array,
    images: jax.Array,
    *,
    smallest: float = 0.08,
    jitter: Sequence[float] = (0.8, 0.8, 0.8, 0.2),
    jitter_probability: float = 0.8,
    grey_probability: float = 0.2,
    size: int = 0,
) -> jax.Array:
    """Random resized crop, flip, and with given probabilities colour jitter and grey; as in SimCLR, without blur.

    `size`: side of the view in pixels; 0 keeps the images' size.

    FedGaLA, appendix D.2; Chen et al., "A simple framework for contrastive learning", 2020, appendix A.
    """
    crop_key, flip_key, jitter_key, whether_key, grey_key = jax.random.split(key, 5)
    view = random_flip(flip_key, random_resized_crop(crop_key, images, smallest=smallest, size=size))
    view = sometimes(jitter_probability, partial(colour_jitter, strengths=jitter))(
        jnp.stack([whether_key, jitter_key]), view
    )
    return sometimes(grey_probability, lambda _, x: to_range(grey(to_unit(x))))(jnp.stack([grey_key, grey_key]), view)


def sometimes(probability: float, view: View) -> View:
    """Applies the view to each image with a probability; takes two keys, for the choice and for the view."""

    def call(keys: jax.Array, images: jax.Array) -> jax.Array:
        chosen = jax.random.bernoulli(keys[0], probability, (len(images), 1, 1, 1))
        return jnp.where(chosen, view(keys[1], images), images)

    return call


def random_resized_crop(
    key: jax.Array, images: jax.Array, *, smallest: float = 0.08, stretch: float = 4 / 3, size: int = 0
) -> jax.Array:
    """torchvision's random resized crop: a random part of each image, with `smallest` to 1 of its area and an aspect
    ratio from `1 / stretch` to `stretch`, resized to `size` pixels a side (0 keeps the image's size)."""
    return crop_and_resize(images, draw_boxes(key, images.shape, smallest, stretch), size)


def draw_boxes(key: jax.Array, shape: Sequence[int], smallest: float, stretch: float) -> Box:
    """torchvision's random rectangles: the area and the logarithm of the aspect ratio are uniform. The first of ten
    draws that fits is placed at random; if none fits, the largest central rectangle within the ratio is taken."""
    batch, height, width = shape[0], float(shape[1]), float(shape[2])
    area_key, ratio_key, place_key = jax.random.split(key, 3)
    area = height * width * jax.random.uniform(area_key, (batch, ATTEMPTS), minval=smallest, maxval=1.0)
    log = jnp.log(jnp.float32(stretch))
    ratio = jnp.exp(jax.random.uniform(ratio_key, (batch, ATTEMPTS), minval=-log, maxval=log))
    w, h = jnp.round(jnp.sqrt(area * ratio)), jnp.round(jnp.sqrt(area / ratio))
    fits = (w >= 1) & (w <= width) & (h >= 1) & (h <= height)
    first = jnp.argmax(fits, axis=1)[:, None]
    some = jnp.any(fits, axis=1)
    h, w = (jnp.take_along_axis(side, first, axis=1)[:, 0] for side in (h, w))
    h = jnp.where(some, h, jnp.minimum(height, jnp.round(width * stretch)))
    w = jnp.where(some, w, jnp.minimum(width, jnp.round(height * stretch)))
    room = jnp.stack([height - h, width - w], axis=1)
    place = jnp.floor(jax.random.uniform(place_key, (batch, 2)) * (room + 1))
    top, left = jnp.where(some[:, None], place, jnp.floor(room / 2)).T
    return Box(top, left, h, w)


def crop_and_resize(images: jax.Array, box: Box, size: int = 0) -> jax.Array:
    """Each image's box resized to `size` pixels a side (0 keeps the image's size): bilinear, antialiased as in Pillow;
    two small matrix products per image."""
    height, width = images.shape[1:3]
    rows = resize_weights(box.top, box.height, height, size or height)
    columns = resize_weights(box.left, box.width, width, size or width)
    return jnp.einsum("boh,bhwc,bpw->bopc", rows, images, columns)


def resize_weights(start: jax.Array, length: jax.Array, size: int, new_size: int) -> jax.Array:
    """Interpolation weights `[batch, new, old]` of `size` old pixels for `new_size` new ones that cover `length` old
    pixels from `start` on: a triangle filter scaled to the larger of an old and a new pixel, cut off at the ends."""
    scale = (length / new_size)[:, None, None]
    old, new = jnp.arange(size, dtype=jnp.float32)[None, None], jnp.arange(new_size, dtype=jnp.float32)[None, :, None]
    first, last = start[:, None, None], (start + length)[:, None, None]
    distance = (old + 0.5 - first - (new + 0.5) * scale) / jnp.maximum(scale, 1)
    weights = jnp.where((old >= first) & (old < last), jnp.maximum(1 - jnp.abs(distance), 0), 0)
    return weights / jnp.sum(weights, axis=2, keepdims=True)


def random_flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Each image mirrored left to right with probability one half."""
    flipped = jax.random.bernoulli(key, 0.5, (len(images), 1, 1, 1))
    return jnp.where(flipped, images[:, :, ::-1], images)


def colour_jitter(key: jax.Array, images: jax.Array, *, strengths: Sequence[float]) -> jax.Array:
    """Brightness, contrast, saturation and hue of each image changed at random.

    Factors are uniform in [1 - s, 1 + s], the hue's shift in [-s, s] of the colour circle. The four changes are applied
    in a random order which, unlike torchvision's, is the same for all images of the batch.

    Args:
      key: random key.
      images: `[batch, height, width, channels]`.
      strengths: s for brightness, contrast, saturation and hue.
    """
    order_key, *keys = jax.random.split(key, 5)
    steps = (brightness, adjust_contrast, saturation, hue)
    centres = (1.0, 1.0, 1.0, 0.0)
    amounts = [
        jax.random.uniform(k, (len(images),), minval=max(centre - s, 0.0 if centre else -s), maxval=centre + s)
        for k, s, centre in zip(keys, strengths, centres, strict=True)
    ]
    changes = [partial(lambda step, amount, x: step(x, amount), *both) for both in zip(steps, amounts, strict=True)]
    order = jax.random.permutation(order_key, len(steps))
    view = jax.lax.fori_loop(0, len(steps), lambda i, x: jax.lax.switch(order[i], changes, x), to_unit(images))
    return to_range(view)


def brightness(images: jax.Array, factor: jax.Array) -> jax.Array:
    """Images in [0, 1] times a factor `[batch]`."""
    return blend_images(images, jnp.zeros_like(images), factor)


def adjust_contrast(images: jax.Array, factor: jax.Array) -> jax.Array:
    """Differences from the image's mean grey value times a factor `[batch]`; images in [0, 1]."""
    return blend_images(images, jnp.mean(grey(images), axis=(1, 2, 3), keepdims=True), factor)


def saturation(images: jax.Array, factor: jax.Array) -> jax.Array:
    """Differences from each pixel's grey value times a factor `[batch]`; images in [0, 1]."""
    return blend_images(images, grey(images), factor)


def blend_images(images: jax.Array, other: jax.Array, factor: jax.Array) -> jax.Array:
    """`other + factor (images - other)`, cut to [0, 1]."""
    return jnp.clip(other + factor[:, None, None, None] * (images - other), 0, 1)


def grey(images: jax.Array) -> jax.Array:
    """The grey value in every channel; images in [0, 1]."""
    if images.shape[-1] != len(LUMA):
        return images
    value = jnp.einsum("...c,c->...", images, jnp.asarray(LUMA, images.dtype))[..., None]
    return jnp.broadcast_to(value, images.shape)


def hue(images: jax.Array, shift: jax.Array) -> jax.Array:
    """Hues rotated by a fraction `[batch]` of the colour circle, with the same value and saturation (HSV); images in
    [0, 1].

    From HSV a channel is `v - v s max(0, min(k, 4 - k, 1))` with `k = (n + 6 h) mod 6`, n = 5, 3, 1 for red, green and
    blue, so that the conversion back to RGB needs no case distinction.
    """
    if images.shape[-1] != len(LUMA):
        return images
    red, green, blue = (images[..., channel] for channel in range(3))
    value, spread = jnp.max(images, axis=-1), jnp.max(images, axis=-1) - jnp.min(images, axis=-1)
    safe = jnp.where(spread > 0, spread, 1)
    sixth = jnp.where(
        value == red,
        (green - blue) / safe,
        jnp.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    turned = jnp.where(spread > 0, sixth, 0) + 6 * shift[:, None, None]
    around = [(n + turned) % 6 for n in (5, 3, 1)]
    return jnp.stack([value - spread * jnp.clip(jnp.minimum(k, 4 - k), 0, 1) for k in around], axis=-1)


def to_unit(images: jax.Array) -> jax.Array:
    """From [-1, 1] to [0, 1]."""
    return 0.5 * (images + 1)


def to_range(images: jax.Array) -> jax.Array:
    """From [0, 1] to [-1, 1]."""
    return 2 * images - 1
