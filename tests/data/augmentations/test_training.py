"""Augmentations change training images by chance, each image by itself, and nothing that is evaluated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from fdgjax.data.augmentations.augmix import OPERATIONS, Choice, Magnitudes, operate
from fdgjax.data.augmentations.training import (
    IMAGE_AUGMENTATIONS,
    RANDAUGMENT,
    WIDE,
    augmentation,
    domainbed,
    trivial,
)
from fdgjax.data.augmentations.view import View
from fdgjax.data.augmentations.weak_strong import random_crop

RNG = np.random.default_rng(0)
IMAGES = jnp.asarray(RNG.uniform(-1, 1, (24, 16, 16, 3)), jnp.float32)
CHANGING = list(IMAGE_AUGMENTATIONS)
CROPPING = ("crop_flip", "inception", "domainbed")


def changing(names: str, size: int = 0) -> View:
    found = augmentation(names, size)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGING)
def test_a_view_is_drawn_anew_for_every_image_and_key(name: str) -> None:
    view = jax.jit(changing(name))
    same = jnp.broadcast_to(IMAGES[:1], (64, *IMAGES.shape[1:]))
    seen = np.asarray(view(jax.random.key(0), same))
    assert len({image.tobytes() for image in seen}) > 1
    assert (np.asarray(view(jax.random.key(1), same)) != seen).any()
    np.testing.assert_array_equal(view(jax.random.key(0), same), seen)
    assert seen.min() >= -1 - 1e-5
    assert seen.max() <= 1 + 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGING)
def test_images_do_not_meet(name: str) -> None:
    view, key = changing(name), jax.random.key(3)
    others = jnp.concatenate([IMAGES[:5], -IMAGES[5:]])
    # Up to rounding: the products of a batch are not ordered by image.
    np.testing.assert_allclose(view(key, IMAGES)[:5], view(key, others)[:5], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CROPPING)
@pytest.mark.parametrize("size", [0, 8, 12])
def test_crops_have_the_size_that_the_network_sees(name: str, size: int) -> None:
    assert changing(name, size)(jax.random.key(0), IMAGES).shape == (24, size or 16, size or 16, 3)


@pytest.mark.slow
def test_a_crop_smaller_than_the_image_is_a_part_of_it() -> None:
    found = np.asarray(random_crop(jax.random.key(0), IMAGES, 12))
    for image, crop in zip(np.asarray(IMAGES), found, strict=True):
        assert any(np.array_equal(image[y : y + 12, x : x + 12], crop) for y in range(5) for x in range(5))


@pytest.mark.slow
def test_domainbed_leaves_most_of_the_area_and_makes_a_tenth_grey() -> None:
    flat = jnp.broadcast_to(jnp.asarray([0.6, 0.1, -0.5]), (512, 8, 8, 3))
    seen = np.asarray(domainbed(0)(jax.random.key(0), flat))
    assert abs(np.ptp(seen, axis=(1, 2))).max() < 1e-4, "a crop of one colour has one colour"
    grey = np.ptp(seen[:, 0, 0], axis=1) < 1e-4
    assert 0.05 < grey.mean() < 0.15
    # A ramp's range shrinks with the part that is left of it: at least .7 of the area has at least .7 * 3/4 of a side.
    ramp = jnp.broadcast_to(jnp.linspace(-0.2, 0.2, 64)[None, None, :, None], (256, 64, 64, 1))
    left = np.ptp(np.asarray(domainbed(0)(jax.random.key(1), ramp)), axis=(1, 2, 3)) / 0.4
    assert left.min() > 0.5 * 0.7  # contrast may take another .3
    assert len(np.unique(left.round(3))) > 50


@pytest.mark.slow
def test_an_operation_of_no_place_leaves_the_image() -> None:
    choice = Choice(jnp.full(24, len(OPERATIONS)), jnp.ones(24), jnp.ones(24))
    for full in (RANDAUGMENT, WIDE):
        np.testing.assert_allclose(operate(0.5 * (IMAGES + 1), choice, full), 0.5 * (IMAGES + 1), atol=1e-5)


@pytest.mark.slow
def test_full_magnitudes_are_torchvisions() -> None:
    photograph = RNG.integers(0, 256, (1, 16, 16, 3), np.uint8)
    # torchvision keeps 8 - round(4 level) bits, or 8 - round(6 level).
    for full, level, bits in ((RANDAUGMENT, 1.0, 4), (WIDE, 1.0, 2), (RANDAUGMENT, 0.3, 7), (WIDE, 0.4, 6)):
        choice = Choice(jnp.asarray([OPERATIONS.index("posterize")]), jnp.full(1, level), jnp.ones(1))
        ours = np.round(255 * np.asarray(operate(jnp.asarray(photograph, jnp.float32) / 255, choice, full)))
        np.testing.assert_array_equal(ours[0], photograph[0] & (256 - 2 ** (8 - bits)))
    turned = operate(
        jnp.asarray(photograph, jnp.float32) / 255,
        Choice(jnp.asarray([OPERATIONS.index("rotate")]), jnp.full(1, 2 / 3), jnp.ones(1)),
        WIDE,
    )
    theirs = (
        np.asarray(Image.fromarray(photograph[0]).rotate(-90)),
        np.asarray(Image.fromarray(photograph[0]).rotate(90)),
    )
    error = min(np.abs(255 * np.asarray(turned[0]) - one).mean() for one in theirs)
    assert error < 1, "two thirds of 135 degrees are a right angle"


@pytest.mark.slow
@pytest.mark.parametrize("full", [RANDAUGMENT, WIDE])
@pytest.mark.parametrize(("name", "row"), [("shear_x", 0), ("shear_y", 1)])
def test_shears_leave_the_corner_as_torchvisions_do(full: Magnitudes, name: str, row: int) -> None:
    # torchvision shears with center=[0, 0], by Pillow's transform of this matrix.
    picture = RNG.uniform(0, 1, (9, 12)).astype(np.float32)
    matrix = np.array([1, 0, 0, 0, 1, 0], float)
    matrix[(1, 3)[row]] = full.shear
    image = Image.fromarray(picture)
    expected = np.asarray(
        image.transform(image.size, Image.Transform.AFFINE, matrix.tolist(), Image.Resampling.BILINEAR)
    )
    choice = Choice(jnp.asarray([OPERATIONS.index(name)]), jnp.ones(1), jnp.ones(1))
    found = operate(jnp.asarray(picture)[None, :, :, None], choice, full)[0, :, :, 0]
    down, right = np.indices(picture.shape)
    source = (right + full.shear * (down + 0.5)) if row == 0 else (down + full.shear * (right + 0.5))
    inside = source <= picture.shape[1 - row] - 1  # in the last half pixel Pillow does not blend with the black beyond
    assert inside.mean() > 0.3
    np.testing.assert_allclose(np.asarray(found)[inside], expected[inside], atol=1e-4)


@pytest.mark.slow
def test_a_list_is_applied_in_order() -> None:
    key = jax.random.key(5)
    first, second = jax.random.split(key)
    wanted = trivial(second, changing("crop_flip", 12)(jax.random.split(first, 1)[0], IMAGES))
    combined = changing("crop_flip, trivial", 12)(key, IMAGES)
    assert combined.shape == wanted.shape
    assert augmentation("none") is None
    assert augmentation("") is None
    assert augmentation("none,none", 8) is None
