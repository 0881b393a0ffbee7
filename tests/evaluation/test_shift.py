"""Covariance of gradients and mutual information of features, against NumPy and known distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.contract import Batch, Context
from fdgjax.evaluation.shift import (
    Minibatches,
    minibatch_gradient,
    mutual_information,
    pairs_of_a_class,
    tree_correlation,
    tree_covariance,
)

LAW = settings(derandomize=True, deadline=None, max_examples=40)


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 999), size=st.integers(2, 30))
def test_covariance_is_numpys_over_all_entries_of_a_tree(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, size)) + 3
    tree = lambda flat: {"a": jnp.asarray(flat[:1]), "b": [jnp.asarray(flat[1:])]}  # noqa: E731
    wanted = np.cov(np.float32(left), np.float32(right), bias=True)[0, 1]
    assert tree_covariance(tree(left), tree(right)) == pytest.approx(wanted, rel=1e-5, abs=1e-7)
    correlation = np.corrcoef(np.float32(left), np.float32(right))[0, 1]
    assert tree_correlation(tree(left), tree(right)) == pytest.approx(correlation, rel=1e-4, abs=1e-6)
    assert tree_correlation(tree(left), tree(0 * right)) == 0


@pytest.mark.parametrize("rho", [0.0, 0.4, -0.9])
def test_mutual_information_of_bivariate_normals_is_the_formula(rho: float) -> None:
    rng, features, pairs = np.random.default_rng(0), 6, 20_000
    x, noise = rng.normal(size=(2, pairs, features))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    wanted = -0.5 * features * np.log(1 - rho**2)
    assert mutual_information(5 * x + 1, y) == pytest.approx(wanted, rel=0.02, abs=3 * features / pairs)
    constant = np.ones((pairs, 1))
    widened = [np.concatenate([side, constant], axis=1) for side in (x, y)]
    assert mutual_information(*widened) == pytest.approx(mutual_information(x, y))


@LAW
@given(seed=st.integers(0, 999))
def test_pairs_are_of_one_class_and_of_classes_that_both_have(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = np.append(rng.integers(0, 3, 20), 1), np.append(rng.integers(1, 5, 15), 1)
    one, other = pairs_of_a_class(rng, left, right, 50)
    np.testing.assert_array_equal(left[one], right[other])
    assert set(left[one]) <= set(left) & set(right)


@pytest.mark.slow
def test_the_gradient_is_the_mean_over_minibatches_each_with_a_key_of_its_own() -> None:
    rng = np.random.default_rng(1)
    inputs, labels = rng.integers(0, 256, (3, 4, 2, 2, 1), np.uint8), rng.integers(0, 2, (3, 4)).astype(np.int32)
    samples = Minibatches(inputs, labels, np.zeros((3, 4), np.int32))
    key, variables = jax.random.key(5), {"params": {"w": jnp.float32(2.0)}, "other": {}}

    def objective(variables: dict, batch: Batch, key: jax.Array, context: Context) -> tuple:
        drawn = jax.random.normal(key)
        return variables["params"]["w"] ** 2 * jnp.mean(batch.inputs) * drawn, {}

    context = Context((), (), variables, jnp.int32(0))
    found = minibatch_gradient(objective, variables, context, samples, key)["w"]
    draws = [float(jax.random.normal(jax.random.fold_in(key, i))) for i in range(3)]
    means = (samples.inputs.astype(np.float64) / 127.5 - 1).mean(axis=(1, 2, 3, 4))
    np.testing.assert_allclose(found, np.mean(4.0 * means * draws), rtol=1e-5)
