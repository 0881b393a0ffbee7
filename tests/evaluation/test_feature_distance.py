"""Distances by sums that clients share: those of the pooled images, of scikit-learn and SciPy, and of rotated ones."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import mahalanobis
from scipy.stats import ortho_group
from sklearn.covariance import OAS

from fdgjax.evaluation.feature_distance import added, distances_in, feature_space, feature_sums

CLASSES = 4


def drawn(seed: int, n: int = 60, m: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Features of three classes of four, far from the origin and correlated."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(3), rng.integers(3, size=n - 3)])
    return 10 + 3 * rng.normal(size=(3, m))[labels] + rng.normal(size=(n, m)) @ rng.normal(size=(m, m)), labels


def distances(features: np.ndarray, labels: np.ndarray, tested: np.ndarray, clients: int = 1) -> np.ndarray:
    """Of the tested features, by the sums of clients that hold equal parts of the others."""
    parts = zip(np.array_split(features, clients), np.array_split(labels, clients), strict=True)
    space = feature_space(added(feature_sums(own, of_own, CLASSES) for own, of_own in parts))
    return np.asarray(distances_in(space, jnp.asarray(tested)))


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.integers(0, 99), st.integers(2, 7))
def test_sums_of_clients_give_the_distances_of_the_pooled_images(seed: int, clients: int) -> None:
    features, labels = drawn(seed)
    tested = features[:9] + 1
    pooled = distances(features, labels, tested)
    np.testing.assert_allclose(distances(features, labels, tested, clients), pooled, rtol=2e-5)
    np.testing.assert_allclose(distances(features[::-1], labels[::-1], tested, clients), pooled, rtol=2e-5)


@pytest.mark.slow
def test_they_are_those_of_scikit_learn_and_scipy() -> None:
    features, labels = drawn(1)
    means = np.stack([features[labels == label].mean(axis=0) for label in range(3)])
    inverse = np.linalg.inv(OAS(assume_centered=True).fit(features - means[labels]).covariance_)
    wanted = [min(mahalanobis(f, mean, inverse) for mean in means) / np.sqrt(5) for f in features]
    np.testing.assert_allclose(distances(features, labels, features), wanted, rtol=1e-4)
    assert 0.7 < np.mean(np.square(wanted)) < 1.1


def test_rotating_shifting_and_scaling_the_features_changes_nothing() -> None:
    features, labels = drawn(2)
    moved = 0.1 * features @ ortho_group.rvs(5, random_state=3) - 4
    ours, theirs = distances(features, labels, features), distances(moved, labels, moved)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("n", [3, 4])
def test_few_images_and_features_that_do_not_vary_have_finite_distances(n: int) -> None:
    features, labels = drawn(4, n)
    assert np.isfinite(distances(features, labels, features + 1)).all()
    assert np.isfinite(distances(np.ones_like(features), labels, features)).all()
