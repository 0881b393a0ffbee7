"""The digits network learns the 1,797 real digits of scikit-learn in a few epochs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from fdgjax.models import DigitsCNN


def test_size_and_any_image_size() -> None:
    model = DigitsCNN(classes=10)
    for size in (8, 13, 28):
        x = jnp.zeros((2, size, size, 1))
        logits, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), x)
        assert logits.shape == (2, 10)
        assert 20_000 <= sum(leaf.size for leaf in jax.tree.leaves(variables)) <= 60_000


@pytest.mark.parametrize("seed", [0])
def test_learns_the_real_digits(seed: int) -> None:
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    x = jnp.asarray(digits.images[order, :, :, None] / 8 - 1, jnp.float32)
    y = jnp.asarray(digits.target[order])
    model, optimiser = DigitsCNN(classes=10), optax.adam(3e-3)
    params = jax.jit(model.init)(jax.random.key(seed), x[:1])

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = model.apply(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), y).mean()

    def step(carry: Any, batch: jax.Array) -> tuple[Any, None]:
        params, state = carry
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            updates, state = optimiser.update(jax.grad(loss)(params, x[batch], y[batch]), state)
        return (optax.apply_updates(params, updates), state), None

    # 5 epochs over 1,408 images, tested on the other 389; a nearest-neighbour rule gets about 98 %.
    epochs = jax.random.split(jax.random.key(seed + 1), 5)
    batches = jax.jit(jax.vmap(lambda key: jax.random.permutation(key, 1408)))(epochs).reshape(-1, 64)
    (params, _), _ = jax.jit(lambda *carry: jax.lax.scan(step, carry, batches))(params, optimiser.init(params))
    predicted = np.asarray(jax.jit(model.apply)(params, x[1408:])).argmax(-1)
    assert (predicted == np.asarray(y)[1408:]).mean() > 0.95
