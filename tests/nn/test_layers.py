"""The modules against Flax, and the initialisations against their definition."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.nn import INITIALISATIONS, Conv, ConvTranspose, Dense
from fdgjax.utils.errors import UserError


def images(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def test_dense_is_flaxs() -> None:
    x = images(3, 5)
    variables = Dense(4).init(jax.random.key(0), x)
    chex.assert_trees_all_equal_shapes_and_dtypes(variables, nn.Dense(4).init(jax.random.key(0), x))
    chex.assert_trees_all_close(Dense(4).apply(variables, x), nn.Dense(4).apply(variables, x), rtol=1e-6)


def test_transposed_convolution_by_its_definition() -> None:
    x = images(2, 3, 4, 5)
    layer = ConvTranspose(6, (2, 3))
    variables = layer.init(jax.random.key(0), x)
    kernel, bias = (np.asarray(variables["params"][name]) for name in ("kernel", "bias"))
    expected = np.zeros((2, 6, 12, 6))
    for i in range(3):
        for j in range(4):
            for u in range(2):
                for v in range(3):
                    expected[:, 2 * i + u, 3 * j + v] = x[:, i, j] @ kernel[u, v] + bias[None]
    np.testing.assert_allclose(np.asarray(layer.apply(variables, x)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "x", "fan_in"),
    [
        (Dense(2000), images(1, 16), 16),
        (Conv(2000, (3, 3)), images(1, 4, 4, 4), 36),
        (Conv(2000, (3, 3), feature_group_count=4), images(1, 4, 4, 8), 18),
        (ConvTranspose(500, (2, 2)), images(1, 4, 4, 4), 2000),
    ],
)
def test_torchs_uniform_law(layer: nn.Module, x: jax.Array, fan_in: int) -> None:
    bound = fan_in**-0.5
    for parameter in layer.init(jax.random.key(0), x)["params"].values():
        assert jnp.abs(parameter).max() <= bound
        assert jnp.abs(parameter).max() > 0.95 * bound
        # Standard deviation of a uniform law: half-width / sqrt(3). 10 % is over 4 sigma of 500 draws.
        np.testing.assert_allclose(parameter.std(), bound / 3**0.5, rtol=0.1)


def test_flax_initialisation_is_flaxs() -> None:
    x = images(1, 6)
    ours = Dense(4, init_name="flax").init(jax.random.key(3), x)
    chex.assert_trees_all_close(ours, nn.Dense(4).init(jax.random.key(3), x))


def test_explicit_initializers_win() -> None:
    layer = Dense(4, kernel_init=nn.initializers.ones, bias_init=nn.initializers.zeros)
    params = layer.init(jax.random.key(0), images(1, 6))["params"]
    assert (params["kernel"] == 1).all()
    assert (params["bias"] == 0).all()


def test_unknown_initialisation() -> None:
    with pytest.raises(UserError, match="did you mean 'torch'"):
        Dense(4, init_name="torhc").init(jax.random.key(0), images(1, 6))
    assert set(INITIALISATIONS) >= {"torch", "flax"}
