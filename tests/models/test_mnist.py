"""DomainBed's network for MNIST, against PyTorch's layers and by what GroupNorm says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models.mnist import GroupNormUnit, MnistCNN
from fdgjax.models.units import identity
from fdgjax.nn import Dense
from fdgjax.variables import flatten


def test_size_at_mnists_pixels_and_others() -> None:
    layers = (9 * 64 + 64) + (64 * 9 * 128 + 128) + 2 * (128 * 9 * 128 + 128) + 2 * (64 + 3 * 128) + (128 * 10 + 10)
    for side in (28, 8, 5):
        logits, variables = jax.eval_shape(
            MnistCNN(10).init_with_output, jax.random.key(0), jnp.zeros((2, side, side, 1))
        )
        assert logits.shape == (2, 10)
        assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == layers == 371_850


@pytest.mark.parametrize(("features", "groups"), [(8, 8), (16, 8), (12, 4), (6, 2), (5, 1)])
def test_groups_are_normalised_after_the_activation(features: int, groups: int) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 7, 4)), jnp.float32)
    for activation in (jax.nn.relu, identity):
        y, _ = GroupNormUnit(Dense, features, activation).init_with_output(jax.random.key(0), x)
        grouped = np.asarray(y).reshape(3, 6 * 7, groups, -1)
        np.testing.assert_allclose(grouped.mean((1, 3)), 0, atol=1e-5)
        np.testing.assert_allclose(grouped.var((1, 3)), 1, rtol=1e-2)
        # ReLU's zeros are still alike, channel by channel: it came first.
        lowest = np.asarray(y).reshape(3, -1, features)
        ties = (lowest == lowest.min(1, keepdims=True)).sum(1)
        assert (ties.max() > 5) == (activation is jax.nn.relu)


def test_numbers_are_those_of_pytorchs_layers() -> None:
    torch = pytest.importorskip("torch")
    model, rng = MnistCNN(4, width=1 / 4), np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3, 11, 12, 2)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.asarray(x))
    variables = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), shapes)
    given = {path: torch.from_numpy(np.array(leaf)) for path, leaf in flatten(variables["params"]).items()}
    y = torch.from_numpy(x).permute(0, 3, 1, 2)
    for i, stride in enumerate((1, 2, 1, 1), start=1):
        kernel = given[f"conv_{i}/layer/kernel"].permute(3, 2, 0, 1)
        y = torch.conv2d(y, kernel, given[f"conv_{i}/layer/bias"], stride=stride, padding=1).relu()
        y = torch.nn.functional.group_norm(y, 8, given[f"conv_{i}/gn/scale"], given[f"conv_{i}/gn/bias"])
    expected = y.mean((2, 3)) @ given["head/kernel"] + given["head/bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(variables, x), expected, rtol=1e-4, atol=1e-4)
