"""hFedF's autoencoder: the table's shapes, any image size, and that it can be trained."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.models import Autoencoder


def images(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(0, 1, shape), jnp.float32)


def test_shapes_of_the_published_table() -> None:
    x = images(2, 32, 32, 3)
    variables = jax.eval_shape(Autoencoder(embedding=5).init, jax.random.key(0), x)
    kernels = {name: layer["kernel"].shape for name, layer in variables["params"].items()}
    assert kernels == {
        "conv_1": (3, 3, 3, 16),
        "conv_2": (3, 3, 16, 32),
        "linear_1": (2048, 5),
        "linear_2": (5, 2048),
        "up_1": (2, 2, 32, 16),
        "up_2": (2, 2, 16, 3),
    }


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 10, 2)])
def test_any_image_size(shape: tuple[int, int, int]) -> None:
    model, x = Autoencoder(embedding=4, image_shape=shape), images(3, *shape)

    @jax.jit
    def calls(key: jax.Array, x: jax.Array) -> Any:
        whole, variables = model.init_with_output(key, x)
        latent = model.apply(variables, x, method="encode")
        return whole, latent, model.apply(variables, latent, method="decode")

    (reconstruction, latent), encoded, decoded = jax.device_get(calls(jax.random.key(0), x))
    chex.assert_shape(reconstruction, x.shape)
    chex.assert_shape(latent, (3, 4))
    assert ((reconstruction >= 0) & (reconstruction <= 1)).all()
    chex.assert_trees_all_close(encoded, latent, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(decoded, reconstruction, rtol=1e-4, atol=1e-5)


def test_other_image_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="set image_shape"):
        Autoencoder(embedding=4).init(jax.random.key(0), images(1, 8, 8, 1))


@pytest.mark.slow
def test_training_reduces_the_reconstruction_error_below_a_constant_image() -> None:
    brightness = images(16, 1, 1, 1)
    x = jnp.broadcast_to(brightness, (16, 8, 8, 1))
    model, optimiser = Autoencoder(embedding=2, image_shape=(8, 8, 1)), optax.adam(2e-2)
    params = jax.jit(model.init)(jax.random.key(0), x)

    @jax.jit
    def loss(params: chex.ArrayTree) -> jax.Array:
        reconstruction, _ = model.apply(params, x)
        return ((reconstruction - x) ** 2).mean()

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        params, state = carry
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            updates, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params: chex.ArrayTree) -> chex.ArrayTree:
        return jax.lax.scan(step, (params, optimiser.init(params)), None, 40)[0][0]

    assert loss(train(params)) < 0.2 * x.var()
