"""AugMix: each operation by hand, chains that stay in range, and a mixture that contains the image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.augmentations.augmix import (
    OPERATIONS,
    Choice,
    augmix,
    autocontrast,
    operate,
    posterize,
    solarize,
    warp,
)

pytestmark = pytest.mark.slow

IMAGES = np.random.default_rng(0).uniform(0.2, 0.9, (len(OPERATIONS), 6, 6, 3)).astype(np.float32)


def test_every_operation_at_level_zero_but_those_of_grey_levels_leaves_the_image() -> None:
    count = len(OPERATIONS)
    changed = operate(jnp.asarray(IMAGES), Choice(jnp.arange(count), jnp.zeros(count), jnp.ones(count)))
    for name, before, after in zip(OPERATIONS, IMAGES, np.asarray(changed), strict=True):
        same = np.allclose(before, after, atol=1e-5)
        # Four bits, a threshold of one, and a stretched range: as in torchvision these have no level without effect,
        # but solarising has no pixel that bright.
        assert same == (name not in ("posterize", "autocontrast")), name


def test_warps_move_pixels_where_they_should() -> None:
    image, zero, none = jnp.asarray(IMAGES[:1]), jnp.zeros((1, 2)), jnp.zeros(1)
    moved = warp(image, zero, jnp.asarray([[1 / 6, -2 / 6]]), none)
    np.testing.assert_allclose(moved[0, 1:, :4], IMAGES[0, :-1, 2:], atol=1e-5)
    np.testing.assert_allclose(moved[0, 0], 0, atol=1e-5)
    turned = warp(image, zero, zero, jnp.asarray([jnp.pi / 2]))
    assert any(np.allclose(turned[0], np.rot90(IMAGES[0], times), atol=1e-4) for times in (1, 3))
    sheared = warp(image, jnp.asarray([[0.0, 0.4]]), zero, none)
    # The row of the centre would stay; the first lies 2.5 above it and moves by one pixel.
    np.testing.assert_allclose(sheared[0, 0, 1:], IMAGES[0, 0, :-1], atol=1e-4)


def test_grey_levels_by_hand() -> None:
    image = jnp.asarray([[[[0.0], [100 / 255]], [[200 / 255], [1.0]]]])
    np.testing.assert_allclose(255 * posterize(image, jnp.ones(1) * 2)[0, :, :, 0], [[0, 64], [192, 192]], rtol=1e-5)
    np.testing.assert_allclose(solarize(image, jnp.ones(1) * 0.5)[0, 1, :, 0], [55 / 255, 0], atol=1e-6)
    stretched = autocontrast(0.2 + 0.5 * image)
    np.testing.assert_allclose(stretched, image, atol=1e-6)
    np.testing.assert_array_equal(autocontrast(jnp.full((1, 2, 2, 1), 0.3)), jnp.full((1, 2, 2, 1), 0.3))


def test_views_differ_stay_in_range_and_lean_on_the_image() -> None:
    images = jnp.asarray(2 * IMAGES - 1)
    view = jax.jit(augmix)
    one, other = view(jax.random.key(0), images), view(jax.random.key(1), images)
    assert one.shape == images.shape
    assert float(jnp.abs(one).max()) <= 1 + 1e-6
    assert not np.allclose(one, other, atol=1e-2)
    for before, after in zip(images, one, strict=True):
        assert np.corrcoef(np.ravel(before), np.ravel(after))[0, 1] > 0
