"""Views move and cover, nothing else; a longer batch does not change them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.data.augmentations.weak_strong import VIEWS, cut_out, shift
from fdgjax.objectives import on_view

IMAGES = np.random.default_rng(0).uniform(0.1, 1, (40, 8, 16, 2)).astype(np.float32)


@pytest.mark.slow
def test_a_shift_is_a_crop_of_the_reflected_image() -> None:
    moved, seen_corners = np.asarray(shift(jax.random.key(0), jnp.asarray(IMAGES))), set()
    for image, got in zip(IMAGES, moved, strict=True):
        padded = np.pad(image, ((1, 1), (2, 2), (0, 0)), mode="reflect")
        found = [(y, x) for y in range(3) for x in range(5) if np.array_equal(padded[y : y + 8, x : x + 16], got)]
        assert found
        seen_corners |= set(found)
    assert len(seen_corners) > 10


@pytest.mark.slow
def test_a_rectangle_is_cut_out() -> None:
    cut = np.asarray(cut_out(jax.random.key(1), jnp.asarray(IMAGES)))
    for image, got in zip(IMAGES, cut, strict=True):
        gone = got != image
        assert (got[gone] == 0).all()
        rows, columns = gone.any(axis=(1, 2)), gone.any(axis=(0, 2))
        assert gone.sum() == 2 * rows.sum() * columns.sum()
        assert 3 <= rows.sum() <= 5
        assert 5 <= columns.sum() <= 9


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_a_longer_batch_changes_nothing(name: str) -> None:
    for view in VIEWS[name]:
        key, images = jax.random.key(2), jnp.asarray(IMAGES)
        np.testing.assert_array_equal(view(key, images)[:7], view(key, images[:7]))


def test_an_objective_sees_the_view() -> None:
    batch = Batch(jnp.asarray(IMAGES), jnp.zeros(40, jnp.int32), jnp.ones(40))
    objective = on_view(lambda variables, batch, key, context: (jnp.sum(batch.inputs), {}), lambda key, x: 2 * x)
    loss, _ = objective({}, batch, jax.random.key(0), Context((), (), {}, jnp.int32(0)))
    np.testing.assert_allclose(loss, 2 * IMAGES.sum(), rtol=1e-5)
