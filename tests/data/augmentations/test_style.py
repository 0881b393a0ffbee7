"""Styles: an image in another style has it, and its own changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.augmentations.style import Style, in_style, style_of, symmetric_beta

IMAGES = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 5, 4, 2)).astype(np.float32)


@pytest.mark.slow
def test_an_image_in_a_mixed_style_has_it() -> None:
    own = style_of(jnp.asarray(IMAGES))
    np.testing.assert_allclose(own.mean, IMAGES.mean((1, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own.deviation, IMAGES.std((1, 2), ddof=1), rtol=1e-4)
    other, share = Style(own.mean[::-1] + 0.1, 0.7 * own.deviation[::-1]), jnp.float32([0, 0.3, 1])
    changed = in_style(jnp.asarray(IMAGES), other, share)
    wanted = jax.tree.map(lambda a, b: share[:, None] * a + (1 - share[:, None]) * b, own, other)
    for got, statistic in zip(style_of(changed), wanted, strict=True):
        np.testing.assert_allclose(got, statistic, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(changed[2], IMAGES[2], atol=1e-6)


@pytest.mark.slow
def test_pixels_stay_in_their_range_and_a_flat_image_is_finite() -> None:
    flat = jnp.full((1, 4, 4, 1), 0.9)
    bright = in_style(flat, Style(jnp.full((1, 1), 5.0), jnp.full((1, 1), 2.0)), jnp.zeros(1))
    np.testing.assert_array_equal(bright, 1)
    pixel = in_style(jnp.full((1, 1, 1, 1), 0.5), Style(jnp.zeros((1, 1)), jnp.ones((1, 1))), jnp.full(1, 0.5))
    np.testing.assert_allclose(pixel, 0.25)


@pytest.mark.parametrize("a", [0.1, 1.0])
def test_shares_have_the_moments_of_their_distribution(a: float) -> None:
    many = 5_000
    drawn = np.asarray(symmetric_beta(jax.random.key(0), a, many), np.float64)
    assert ((drawn >= 0) & (drawn <= 1)).all()
    variance = 1 / (4 * (2 * a + 1))
    np.testing.assert_allclose(drawn.mean(), 0.5, atol=5 * np.sqrt(variance / many))
    np.testing.assert_allclose(drawn.var(), variance, rtol=0.05)
    if a == 1:  # uniform
        np.testing.assert_allclose(np.sort(drawn), np.linspace(0, 1, many), atol=0.03)
