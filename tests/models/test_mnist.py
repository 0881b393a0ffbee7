"""The networks for MNIST's domains, against PyTorch's layers and by what GroupNorm says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models.mnist import DirtCNN, GroupNormUnit, MnistCNN
from fdgjax.models.units import no_activation
from fdgjax.nn import Dense
from fdgjax.utils.errors import UserError
from tests.conformance import check
from tests.conformance.networks import MNIST, mnist_given


def test_size_at_mnists_pixels_and_others() -> None:
    layers = (9 * 64 + 64) + (64 * 9 * 128 + 128) + 2 * (128 * 9 * 128 + 128) + 2 * (64 + 3 * 128) + (128 * 10 + 10)
    for side in (28, 8, 5):
        logits, variables = jax.eval_shape(
            MnistCNN(10).init_with_output, jax.random.key(0), jnp.zeros((2, side, side, 1))
        )
        assert logits.shape == (2, 10)
        assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == layers == 371_850


@pytest.mark.slow
@pytest.mark.parametrize(("features", "groups"), [(8, 8), (16, 8), (12, 4), (6, 2), (5, 1)])
def test_groups_are_normalised_after_the_activation(features: int, groups: int) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 7, 4)), jnp.float32)
    for activation in (jax.nn.relu, no_activation):
        y, _ = jax.jit(GroupNormUnit(Dense, features, activation).init_with_output)(jax.random.key(0), x)
        grouped = np.asarray(y).reshape(3, 6 * 7, groups, -1)
        np.testing.assert_allclose(grouped.mean((1, 3)), 0, atol=1e-5)
        np.testing.assert_allclose(grouped.var((1, 3)), 1, rtol=1e-2)
        # ReLU's zeros are still alike, channel by channel: it came first.
        lowest = np.asarray(y).reshape(3, -1, features)
        ties = (lowest == lowest.min(1, keepdims=True)).sum(1)
        assert (ties.max() > 5) == (activation is jax.nn.relu)


@pytest.mark.slow
def test_numbers_are_those_of_pytorchs_layers() -> None:
    variables, x = mnist_given()
    check("mnist", {"logits": jax.jit(MNIST.apply)(variables, x)}, rtol=1e-4, atol=1e-4)


def test_the_size_of_dirts_network() -> None:
    layers = 25 * 32 + 32 * 25 * 64 + 2 * (32 + 64) + (16 * 64 * 64 + 64) + (64 * 10 + 10)
    for side in (28, 16, 32):
        logits, variables = jax.eval_shape(
            DirtCNN(10).init_with_output, jax.random.key(0), jnp.zeros((2, side, side, 1))
        )
        assert logits.shape == (2, 10)
        assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == layers == 118_442
    with pytest.raises(UserError, match=r"15 x 15 pixels.*expected at least 16 x 16.*published: 28"):
        jax.eval_shape(DirtCNN(10).init, jax.random.key(0), jnp.zeros((2, 15, 15, 1)))
