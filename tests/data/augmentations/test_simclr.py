"""Views as Pillow makes them, drawn as they are meant to be."""

import colorsys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance

from fdgjax.data.augmentations.simclr import (
    Box,
    adjust_contrast,
    brightness,
    colour_jitter,
    crop_and_resize,
    draw_boxes,
    grey,
    hue,
    random_flip,
    random_resized_crop,
    saturation,
    simclr_view,
)

SIDE = 24
LEVEL = 1 / 255


def photographs(many: int = 3, channels: int = 3) -> np.ndarray:
    """Smooth random images, uint8."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (many, 5, 5, channels), np.uint8)
    big = [
        [Image.fromarray(c[..., i]).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for i in range(channels)]
        for c in coarse
    ]
    return np.stack([np.stack([np.asarray(one) for one in image], axis=-1) for image in big])


def unit(images: np.ndarray) -> jax.Array:
    return jnp.asarray(images, jnp.float32) / 255


BOXES = [(3, 5, 12, 17), (0, 0, SIDE, SIDE), (10, 2, 5, 4), (0, 11, 24, 13), (23, 23, 1, 1)]


@pytest.mark.parametrize(("box", "size"), [*((box, SIDE) for box in BOXES), (BOXES[0], 7)])
def test_crops_are_resized_as_by_pillow(box: tuple[int, int, int, int], size: int) -> None:
    top, left, height, width = box
    images = photographs()
    crop = jax.jit(crop_and_resize, static_argnums=2)
    got = crop(unit(images), Box(*(jnp.full(3, side, jnp.float32) for side in box)), size)
    edges = (left, top, left + width, top + height)
    for image, ours in zip(images, np.asarray(got), strict=True):
        theirs = Image.fromarray(image).crop(edges).resize((size, size), Image.Resampling.BILINEAR)
        np.testing.assert_allclose(ours, np.asarray(theirs) / 255, atol=1.6 * LEVEL)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(brightness, ImageEnhance.Brightness), (adjust_contrast, ImageEnhance.Contrast), (saturation, ImageEnhance.Color)],
)
@pytest.mark.parametrize("factor", [0.2, 1.0, 1.8])
def test_colours_are_enhanced_as_by_pillow(ours: Callable[..., jax.Array], theirs: Any, factor: float) -> None:
    images = photographs()
    got = np.asarray(jax.jit(ours)(unit(images), jnp.full(3, factor)))
    for image, own in zip(images, got, strict=True):
        np.testing.assert_allclose(
            own, np.asarray(theirs(Image.fromarray(image)).enhance(factor)) / 255, atol=2 * LEVEL
        )


def test_grey_is_pillows() -> None:
    images = photographs()
    for image, own in zip(images, np.asarray(jax.jit(grey)(unit(images))), strict=True):
        np.testing.assert_allclose(own[..., 0], np.asarray(Image.fromarray(image).convert("L")) / 255, atol=LEVEL)
        np.testing.assert_array_equal(own[..., 0], own[..., 2])


@pytest.mark.parametrize("shift", [-0.2, 0.0, 0.15, 0.5])
def test_hue_is_turned_as_by_colorsys(shift: float) -> None:
    images = unit(photographs(1)).at[0, 0, :3].set(jnp.asarray([[0.0, 0, 0], [0.5, 0.5, 0.5], [1.0, 1.0, 0.2]]))
    got = np.asarray(jax.jit(hue)(images, jnp.full(1, shift)))
    for pixel, own in zip(np.asarray(images).reshape(-1, 3), got.reshape(-1, 3), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*map(float, pixel))
        np.testing.assert_allclose(own, colorsys.hsv_to_rgb((h + shift) % 1, s, v), atol=2e-5)


@pytest.mark.slow
def test_boxes_are_torchvisions() -> None:
    boxes = jax.jit(draw_boxes, static_argnums=(1, 2, 3))(jax.random.key(0), (20_000, 40, 32, 3), 0.08, 4 / 3)
    top, left, height, width = (np.asarray(side) for side in boxes)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 40).all()
    assert (left + width <= 32).all()
    share, ratio = height * width / (40 * 32), width / height
    # Sides are whole pixels.
    assert share.min() > 0.07
    assert share.max() <= 1
    assert (np.abs(np.log(ratio)) < np.log(4 / 3) + 0.15).all()
    # Small boxes always fit: their areas are uniform, so that [0.1, 0.2] and [0.2, 0.3] are equally frequent.
    low, high = ((share > a) & (share < a + 0.1) for a in (0.1, 0.2))
    assert abs(low.mean() / high.mean() - 1) < 0.1
    assert abs(np.log(ratio[share < 0.3]).mean()) < 0.02


@pytest.mark.slow
def test_where_no_box_fits_the_largest_central_one_is_taken() -> None:
    box = draw_boxes(jax.random.key(0), (2, 8, 100, 1), 0.99, 4 / 3)
    np.testing.assert_array_equal(np.asarray(box)[:, 0], [0, 44, 8, 11])
    tall = draw_boxes(jax.random.key(0), (2, 100, 8, 1), 0.99, 4 / 3)
    np.testing.assert_array_equal(np.asarray(tall)[:, 0], [44, 0, 11, 8])


def test_flips_are_mirror_images_of_half_of_them() -> None:
    images = jnp.tile(unit(photographs(1)), (400, 1, 1, 1))
    flipped = np.asarray(jax.jit(random_flip)(jax.random.key(0), images))
    mirrored = (flipped == np.asarray(images)[:, :, ::-1]).all(axis=(1, 2, 3))
    same = (flipped == np.asarray(images)).all(axis=(1, 2, 3))
    assert (mirrored ^ same).all()
    assert 0.4 < mirrored.mean() < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_a_view_is_an_image_of_its_own_for_each_image_and_key(channels: int) -> None:
    images = 2 * jnp.tile(unit(photographs(1, channels)), (6, 1, 1, 1)) - 1
    view = jax.jit(simclr_view)
    first, second = (np.asarray(view(jax.random.key(key), images)) for key in (0, 1))
    assert first.shape == images.shape
    assert first.dtype == np.float32
    assert np.abs(first).max() <= 1 + 1e-5
    assert len({one.tobytes() for one in (*first, *second)}) == 12
    np.testing.assert_array_equal(first, view(jax.random.key(0), images))


@pytest.mark.slow
def test_a_view_is_coloured_as_often_and_as_much_as_in_simclr() -> None:
    """Jittered with probability .8, grey with .2, the hue turned by a fifth of the circle at most: of one colour, so
    that its place does not matter."""
    colour = np.array([0.45, 0.3, 0.2], np.float32)
    view = jax.jit(simclr_view)(jax.random.key(0), 2 * jnp.broadcast_to(colour, (2000, 4, 4, 3)) - 1)
    pixels = (np.asarray(view)[:, 0, 0] + 1) / 2
    grey_ones, same = np.ptp(pixels, axis=1) < LEVEL, np.abs(pixels - colour).max(axis=1) < LEVEL / 4
    assert abs(grey_ones.mean() - 0.2) < 0.04
    assert abs(same.mean() - 0.2 * 0.8) < 0.04
    kept = pixels[~grey_ones & ~same & (pixels.min(axis=1) > LEVEL) & (pixels.max(axis=1) < 1 - LEVEL)]
    hues = np.array([colorsys.rgb_to_hsv(*map(float, pixel))[0] for pixel in kept])
    turned = np.abs((hues - colorsys.rgb_to_hsv(*map(float, colour))[0] + 0.5) % 1 - 0.5)
    assert 0.18 < np.quantile(turned, 0.99) < 0.21


@pytest.mark.slow
def test_without_strength_nothing_changes() -> None:
    images = 2 * unit(photographs()) - 1
    still = jax.jit(partial(colour_jitter, strengths=(0, 0, 0, 0)))
    np.testing.assert_allclose(still(jax.random.key(0), images), images, atol=1e-5)
    whole = jax.jit(partial(random_resized_crop, smallest=1.0, stretch=1.0))(jax.random.key(0), images)
    np.testing.assert_allclose(whole, images, atol=1e-5)
