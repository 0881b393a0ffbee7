"""hFedF's client network: published size and shapes, dropout, and any image size."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import InceptionCNN
from fdgjax.models.inception import InceptionModule
from fdgjax.utils.errors import UserError

PUBLISHED_PARAMETERS = 928_199  # at 7 classes


def images(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(-1, 1, shape), jnp.float32)


def shapes(model: Any, x: jax.Array) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0), x)


def test_published_number_of_parameters() -> None:
    params = shapes(InceptionCNN(classes=7), images(1, 32, 32, 3))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PUBLISHED_PARAMETERS


def test_published_channels_of_the_inception_modules() -> None:
    for inputs, outputs in ((64, 176), (176, 288)):
        x = images(1, 8, 8, inputs)
        out, _ = jax.eval_shape(InceptionModule().init_with_output, jax.random.key(0), x)
        assert out.shape == (1, 8, 8, outputs)


def test_layers_are_named_as_in_the_table() -> None:
    params = shapes(InceptionCNN(classes=7), images(1, 32, 32, 3))["params"]
    branches = {"conv_1x1", "conv_3x3", "conv_5x5"}
    layers = {"conv_1", "conv_2", "conv_3", "inception_1", "inception_2", "linear_1", "linear_2"}
    assert set(params) == layers
    assert set(params["inception_1"]) == set(params["inception_2"]) == branches


def drawn(variables: Any) -> Any:
    """Parameters for a tree of shapes; quicker than compiling the model's initialisation."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.1, leaf.shape), leaf.dtype), variables)


@pytest.mark.slow
def test_dropout_only_in_training() -> None:
    model, x = InceptionCNN(classes=3), images(2, 8, 8, 3)
    variables = drawn(shapes(model, x))
    predict = jax.jit(model.apply)(variables, x)
    train = jax.jit(lambda key: model.apply(variables, x, train=True, rngs={"dropout": key}))
    chex.assert_trees_all_equal(train(jax.random.key(1)), train(jax.random.key(1)))
    assert not jnp.allclose(train(jax.random.key(1)), train(jax.random.key(2)))
    assert not jnp.allclose(train(jax.random.key(1)), predict)
    with pytest.raises(Exception, match="dropout"):
        model.apply(variables, x, train=True)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 16, 1), (19, 33, 3), (64, 64, 3)])
def test_any_image_size(shape: tuple[int, int, int]) -> None:
    x = images(2, *shape)
    logits, _ = jax.eval_shape(InceptionCNN(classes=5).init_with_output, jax.random.key(0), x)
    assert logits.shape == (2, 5)
    assert logits.dtype == jnp.float32


@pytest.mark.slow
def test_clients_in_vmap_equal_clients_one_by_one() -> None:
    model, x = InceptionModule(channels=(2, 3, 2)), images(2, 2, 5, 5, 3)
    variables = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), drawn(shapes(model, x[0])))

    def gradient(variables: Any, x: jax.Array) -> Any:
        return jax.grad(lambda v: jnp.square(jnp.asarray(model.apply(v, x))).sum())(variables)

    together = jax.jit(jax.vmap(gradient))(variables, x)
    one_by_one = jax.jit(lambda *both: jax.lax.map(lambda pair: gradient(*pair), both))(variables, x)
    chex.assert_trees_all_close(together, one_by_one, rtol=1e-4, atol=1e-5)


def test_unknown_initialisation_is_a_user_error() -> None:
    with pytest.raises(UserError, match="initialisation"):
        shapes(InceptionCNN(classes=3, init_name="pytorch"), images(1, 16, 16, 3))
