"""FedFA's layer: what it leaves alone, what it draws, and what it keeps for the server."""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import UNITS
from fdgjax.models.feature_augmentation import FeatureAugmentation
from fdgjax.nn import Conv, Dense
from fdgjax.utils.variables import flatten

SHAPE = (6, 4, 5, 3)
ALWAYS = FeatureAugmentation(probability=1.0)


def images() -> jax.Array:
    rng = np.random.default_rng(0)
    spread, centre = rng.uniform(0.5, 2, (6, 1, 1, 3)), rng.normal(size=(6, 1, 1, 3))
    return jnp.asarray(centre + spread * rng.normal(size=SHAPE), jnp.float32)


def started(across_mean: tuple[float, ...] = (1, 1, 1), across_std: tuple[float, ...] = (1, 1, 1)) -> Any:
    names = ("mean_variance", "std_variance")
    variances = {n: jnp.asarray(v, jnp.float32) for n, v in zip(names, (across_mean, across_std), strict=True)}
    return {"batch_stats": {"mean": jnp.zeros(3), "std": jnp.ones(3), **variances}}


def augment(layer: FeatureAugmentation, variables: Any, key: int | jax.Array, x: jax.Array) -> Any:
    key = jax.random.key(key) if isinstance(key, int) else key
    return layer.apply(variables, x, train=True, rngs={"dropout": key}, mutable=["batch_stats"])


def moments(x: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    values = np.asarray(x, np.float64)
    return values.mean((1, 2)), np.sqrt(values.var((1, 2)) + 1e-6)


def test_variables_and_where_they_start() -> None:
    variables = FeatureAugmentation().init(jax.random.key(0), images())
    chex.assert_trees_all_equal(variables, started())


@pytest.mark.parametrize(
    ("probability", "train", "x"), [(1.0, False, images()), (0.0, True, images()), (1.0, True, images()[:, 0, 0])]
)
def test_nothing_in_evaluation_without_luck_or_without_pixels(probability: float, train: bool, x: jax.Array) -> None:
    layer, variables = FeatureAugmentation(probability), started()
    y, changed = layer.apply(variables, x, train=train, rngs={"dropout": jax.random.key(0)}, mutable=["batch_stats"])
    np.testing.assert_array_equal(y, x)
    chex.assert_trees_all_equal(changed["batch_stats"], variables["batch_stats"])


def test_only_channel_statistics_change() -> None:
    x = images()
    y, _ = augment(ALWAYS, started(), 0, x)
    (mean, std), (new_mean, new_std) = moments(x), moments(y)
    assert (np.abs(new_mean - mean) > 1e-4).all()
    before = (np.asarray(x) - mean[:, None, None]) / std[:, None, None]
    after = (np.asarray(y) - new_mean[:, None, None]) / new_std[:, None, None]
    # A negative new deviation mirrors what is normalised.
    mirrored = np.sign((before * after).mean((1, 2), keepdims=True))
    np.testing.assert_allclose(mirrored * after, before, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_law_of_the_new_statistics() -> None:
    x, across = images(), ((0.1, 1.0, 10.0), (3.0, 1.0, 0.2))
    variables = started(*across)
    keys = jax.random.split(jax.random.key(0), 4000)
    mean, std = moments(x)
    normalised = jnp.asarray((np.asarray(x) - mean[:, None, None]) / std[:, None, None], jnp.float32)

    def statistics(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The new mean, and the new deviation with its sign: what is normalised has mean 0 and mean square 1."""
        y, _ = augment(ALWAYS, variables, key, x)
        return y.mean((1, 2)), (y * normalised).mean((1, 2))

    drawn = jax.device_get(jax.jit(lambda keys: jax.lax.map(statistics, keys))(keys))
    for measured, values, variances in zip((mean, std), drawn, across, strict=True):
        share = 1 / (1 + 1 / np.asarray(variances))
        variance = (3 * share / share.sum() + 1) * measured.var(0)
        np.testing.assert_allclose(values.mean(0), measured, atol=4 * np.sqrt(variance.max() / 4000))
        np.testing.assert_allclose(values.var(0).mean(0), variance, rtol=0.05)


def test_running_means_move_with_the_augmentation_and_the_server_s_variances_never() -> None:
    x, variables = images(), started((2, 3, 4), (5, 6, 7))
    _, changed = augment(ALWAYS, variables, 0, x)
    mean, std = moments(x)
    expected = variables["batch_stats"] | {"mean": 0.01 * mean.mean(0), "std": 0.99 + 0.01 * std.mean(0)}
    expected = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), expected)
    chex.assert_trees_all_close(changed["batch_stats"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_half_of_the_batches_are_augmented() -> None:
    x, keys = images(), jax.random.split(jax.random.key(1), 400)
    same = jax.jit(jax.vmap(lambda key: (augment(FeatureAugmentation(), started(), key, x)[0] == x).all()))(keys)
    assert 0.4 < same.mean() < 0.6


@pytest.mark.slow
def test_gradients_are_finite_where_a_channel_is_constant() -> None:
    x = jnp.zeros(SHAPE)
    gradient = jax.grad(lambda x: jnp.square(augment(ALWAYS, started(), 0, x)[0]).sum())(x)
    chex.assert_tree_all_finite(gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "shape", "augmented"), [(partial(Conv, kernel_size=(3, 3)), SHAPE, True), (Dense, (6, 3), False)]
)
def test_the_unit_is_a_norm_unit_with_the_layer_behind_convolutions(layer: Any, shape: Any, augmented: bool) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    units: Any = UNITS
    unit, norm = units["augmented"](layer, 4), units["norm"](layer, 4)
    variables, plain = (jax.eval_shape(one.init, jax.random.key(0), x) for one in (unit, norm))
    more = set(flatten(variables)) - set(flatten(plain))
    names = ("mean", "std", "mean_variance", "std_variance")
    assert more == ({f"batch_stats/ffa/{name}" for name in names} if augmented else set())
    filled = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5), variables)
    kept = {key: {name: leaf for name, leaf in tree.items() if name != "ffa"} for key, tree in filled.items()}
    np.testing.assert_array_equal(unit.apply(filled, x), norm.apply(kept, x))
