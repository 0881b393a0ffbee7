"""Views of tables and series: what is drawn, what stays, and that images are seen as before."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.data.augmentations.corruption import add_noise, corrupt, mask
from fdgjax.data.augmentations.simclr import random_resized_crop, simclr_view
from fdgjax.data.augmentations.training import AUGMENTATIONS, IMAGE_AUGMENTATIONS, augmentation
from fdgjax.data.augmentations.weak_strong import VIEWS, shift, shift_and_cut_out
from fdgjax.methods.fedsimclr import AUGMENTATIONS as TWO_VIEWS
from fdgjax.utils.errors import UserError

KEY = jax.random.key(5)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 3)).astype(np.float32)
SHAPES = [(50, 7), (50, 6, 2)]


def distinct(shape: tuple[int, ...]) -> np.ndarray:
    """Every number once, so that a number tells the sample and the feature that it comes from."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_corrupted_feature_is_the_same_feature_of_another_sample(shape: tuple[int, ...]) -> None:
    x = distinct(shape)
    seen = np.asarray(jax.jit(partial(corrupt, probability=1.0))(KEY, x)).reshape(len(x), -1)
    features = seen.shape[1]
    sample, feature = np.divmod(seen.astype(int), features)
    np.testing.assert_array_equal(feature, np.broadcast_to(np.arange(features), feature.shape))
    assert (sample != np.arange(len(x))[:, None]).all()
    # The features of a sample come from samples of their own.
    assert all(len(set(row)) > 1 for row in sample)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_probability_changes_nothing_and_a_batch_of_one_has_no_other(count: int) -> None:
    x = distinct((count, 3))
    never, always = (jax.jit(partial(corrupt, probability=share)) for share in (0.0, 1.0))
    for seed in range(20):
        np.testing.assert_array_equal(never(jax.random.key(seed), x), x)
        seen = np.asarray(always(jax.random.key(seed), x))
        # The other one of two is known; of one there is none.
        assert (seen == x).all() == (count == 1)
        assert count != 2 or (seen == x[::-1]).all()


def test_the_share_that_is_corrupted_and_every_other_sample_alike() -> None:
    x = distinct((5, 20_000))
    seen = np.asarray(jax.jit(corrupt)(KEY, x))
    # Four standard deviations of a share of 100,000 draws.
    assert abs((seen != x).mean() - 0.6) < 0.0062
    steps = (seen - x)[seen != x] % (5 * 20_000) / 20_000
    counts = np.bincount(steps.astype(int), minlength=5)
    assert counts[0] == 0
    assert abs(counts[1:] / counts.sum() - 0.25).max() < 0.0071


def test_marginals_are_preserved_and_dependence_is_not() -> None:
    """Two columns that are equal: each keeps its distribution, (1 - p)^2 + p^2 / (n - 1) of the pairs stay equal."""
    column = np.random.default_rng(1).normal(2.0, 3.0, 20_000).astype(np.float32)
    x = np.stack([column, column], axis=1)
    seen = np.asarray(jax.jit(corrupt)(KEY, x))
    for deciles in (np.quantile(seen[:, 0], [0.1, 0.5, 0.9]), np.quantile(seen[:, 1], [0.1, 0.5, 0.9])):
        np.testing.assert_allclose(deciles, np.quantile(column, [0.1, 0.5, 0.9]), atol=0.2)
    assert abs((seen[:, 0] == seen[:, 1]).mean() - 0.16) < 0.0104
    assert abs(np.corrcoef(seen.T)[0, 1] - 0.16) < 0.04


@pytest.mark.slow
def test_noise_has_its_deviation_and_masks_their_share() -> None:
    x = jnp.ones((100, 1000))
    noise = np.asarray(add_noise(KEY, x)) - x
    assert abs(noise.mean()) < 4 * 0.1 / 1e5**0.5
    assert abs(noise.std() - 0.1) < 4 * 0.1 / 2e5**0.5
    masked = np.asarray(mask(KEY, x))
    assert set(np.unique(masked)) == {0.0, 1.0}
    assert abs((masked == 0).mean() - 0.1) < 4 * (0.09 / 1e5) ** 0.5
    np.testing.assert_array_equal(add_noise(KEY, x, deviation=0.0), x)
    np.testing.assert_array_equal(mask(KEY, x, probability=0.0), x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "view",
    [corrupt, augmentation("noise"), augmentation("mask"), augmentation("noise,mask"), *VIEWS["shift"]],
)
def test_a_view_keeps_shape_and_type_and_follows_its_key(view: partial, shape: tuple[int, ...]) -> None:
    x = distinct(shape) / 100
    first, second = (np.asarray(jax.jit(view)(jax.random.key(seed), x)) for seed in (0, 1))
    assert (first.shape, first.dtype) == (shape, np.float32)
    assert (first != second).any()
    np.testing.assert_array_equal(jax.jit(view)(jax.random.key(0), x), first)


@pytest.mark.slow
def test_images_are_seen_as_before() -> None:
    weak, strong = VIEWS["shift"]
    pairs: Sequence[tuple[Callable[..., Any], Callable[..., Any]]] = (
        (TWO_VIEWS["simclr"](0.2), partial(simclr_view, smallest=0.2)),
        (TWO_VIEWS["crop"](0.2), partial(random_resized_crop, smallest=0.2)),
        (weak, shift),
        (strong, shift_and_cut_out),
        *((AUGMENTATIONS[name](0), one.make(0)) for name, one in IMAGE_AUGMENTATIONS.items()),
    )
    for view, images_alone in pairs:
        assert str(jax.make_jaxpr(view)(KEY, IMAGES)) == str(jax.make_jaxpr(images_alone)(KEY, IMAGES))


@pytest.mark.slow
def test_tables_are_corrupted_for_methods_without_labels() -> None:
    x = jnp.asarray(distinct((6, 4)))
    np.testing.assert_array_equal(TWO_VIEWS["simclr"](0.08)(KEY, x), corrupt(KEY, x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("view", "said"),
    [
        *((augmentation(name), f"augmentation={name} is made for images.*noise") for name in IMAGE_AUGMENTATIONS),
        *((TWO_VIEWS[name](0.1), f"method.augmentation={name} is made for images") for name in ("crop", "flip")),
    ],
)
def test_views_of_images_refuse_other_samples_in_one_line(view: partial, said: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=said) as error:
        jax.eval_shape(view, KEY, jax.ShapeDtypeStruct(shape, jnp.float32))
    assert "\n" not in str(error.value)
