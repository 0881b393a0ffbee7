"""Differences between domains against loops over the domains in NumPy, as DomainBed's classes compute them."""

import functools
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch
from fdgjax.objectives import by_domain

DOMAINS, CLASSES, M = 4, 3, 5
KINDS = np.array([2, 0, 2, 1, 0, 2, 0, 1, 2, 0, 1, 2, 0, 0])
"""Domain 3 has no sample; the last two are padding."""
REAL = np.arange(len(KINDS)) < 12
RNG = np.random.default_rng(0)
FEATURES, LOGITS = RNG.normal(size=(len(KINDS), M)), 2 * RNG.normal(size=(len(KINDS), CLASSES))
LABELS = RNG.integers(0, CLASSES, len(KINDS))


def of(values: np.ndarray, domain: int) -> np.ndarray:
    return values[REAL & (domain == KINDS)]


def to_jax(*values: np.ndarray) -> list[jax.Array]:
    return [jnp.asarray(v, jnp.int32 if v.dtype.kind == "i" else jnp.float32) for v in values]


@functools.cache
def found() -> dict[str, np.ndarray]:
    """Everything of the batch, in one program."""

    @jax.jit
    def compute(features: jax.Array, logits: jax.Array, labels: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        own = by_domain.members(batch, DOMAINS)
        mmd, gradient = jax.value_and_grad(by_domain.pairwise_mmd)(features, own)
        return {
            "members": own,
            "coral": by_domain.coral(features, own),
            "mmd": mmd,
            "unbiased": by_domain.pairwise_mmd(features, own, unbiased=True),
            "gradient": gradient,
            "irm": by_domain.invariance_penalty(logits, labels, own),
            "fishr": by_domain.gradient_variances(features, logits, labels, own),
            "fishr_without_bias": by_domain.gradient_variances(features, logits, labels, own, bias=False),
            "means": by_domain.domain_means(features[:, 0], own),
            "mean": by_domain.mean_over_domains(features[:, 0], own),
            "partners": jax.vmap(by_domain.partners, (0, None))(jax.random.split(jax.random.key(0), 20), own),
        }

    features, logits, labels, mask, kinds = to_jax(FEATURES, LOGITS, LABELS, REAL.astype(np.float32), KINDS)
    return jax.device_get(compute(features, logits, labels, Batch(features, labels, mask, domains=kinds)))


@pytest.mark.slow
def test_members_are_the_domains_of_real_samples() -> None:
    np.testing.assert_array_equal(found()["members"], np.eye(DOMAINS)[KINDS] * REAL[:, None])


def pairs(distance: Any) -> float:
    return float(np.mean([distance(of(FEATURES, i), of(FEATURES, j)) for i, j in combinations(range(3), 2)]))


def loop_coral(x: np.ndarray, y: np.ndarray) -> float:
    means, covariances = [z.mean(0) for z in (x, y)], [np.cov(z.T) for z in (x, y)]
    return float(np.mean((means[0] - means[1]) ** 2) + np.mean((covariances[0] - covariances[1]) ** 2))


def loop_mmd(x: np.ndarray, y: np.ndarray) -> float:
    def mean(first: np.ndarray, second: np.ndarray) -> float:
        squared = ((first[:, None] - second[None]) ** 2).sum(-1)
        return float(np.mean(sum(np.exp(-g * squared) for g in 10.0 ** np.arange(-3, 4))))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


@pytest.mark.slow
def test_coral_is_the_mean_over_pairs_of_means_and_covariances() -> None:
    np.testing.assert_allclose(found()["coral"], pairs(loop_coral), rtol=1e-5)


@pytest.mark.slow
def test_mmd_is_the_mean_over_pairs_and_has_a_gradient() -> None:
    np.testing.assert_allclose(found()["mmd"], pairs(loop_mmd), rtol=1e-4)
    assert np.isfinite(found()["gradient"]).all()
    assert found()["gradient"][:12].any()
    np.testing.assert_array_equal(found()["gradient"][12:], 0)


def test_the_unbiased_mmd_leaves_a_sample_with_itself_out() -> None:
    def mean(first: np.ndarray, second: np.ndarray) -> float:
        squared = ((first[:, None] - second[None]) ** 2).sum(-1)
        values = sum(np.exp(-g * squared) for g in 10.0 ** np.arange(-3, 4))
        return float(np.mean(values[np.eye(len(values)) == 0] if first is second else values))

    wanted = pairs(lambda x, y: mean(x, x) + mean(y, y) - 2 * mean(x, y))
    np.testing.assert_allclose(found()["unbiased"], wanted, rtol=1e-4)


@pytest.mark.slow
def test_a_domain_with_one_sample_has_a_mean_but_no_covariance_and_no_halves() -> None:
    own, parts = np.repeat(np.eye(3), [4, 4, 1], axis=0), (slice(0, 4), slice(4, 8), slice(8, 9))
    features, logits, labels = FEATURES[:9], LOGITS[:9], LABELS[:9]
    means = [features[part].mean(0) for part in parts]
    covariances = [np.cov(features[part].T) for part in parts[:2]]
    wanted = np.mean([np.mean((one - other) ** 2) for one, other in combinations(means, 2)])
    wanted += np.mean((covariances[0] - covariances[1]) ** 2)
    np.testing.assert_allclose(jax.jit(by_domain.coral)(*to_jax(features, own)), wanted, rtol=1e-5)
    halves = [[slope(logits[part][i::2], labels[part][i::2]) for i in range(2)] for part in parts[:2]]
    penalty = jax.jit(by_domain.invariance_penalty)(*to_jax(logits, labels, own))
    np.testing.assert_allclose(penalty, np.prod(halves, axis=1).mean(), rtol=1e-4)


@pytest.mark.parametrize("distance", [by_domain.coral, by_domain.pairwise_mmd])
def test_domains_that_are_copies_of_each_other_and_single_ones_have_no_distance(distance: Any) -> None:
    some, alike, one = np.repeat(FEATURES[:4], 2, axis=0), np.tile(np.eye(2), (4, 1)), np.tile([1.0, 0.0], (8, 1))
    cases = to_jax(np.stack([alike, one, np.zeros((8, 2))]))[0]
    np.testing.assert_allclose(jax.jit(jax.vmap(distance, (None, 0)))(*to_jax(some), cases), 0, atol=1e-5)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]


def slope(logits: np.ndarray, labels: np.ndarray) -> float:
    """The derivative by a factor of the logits, by central differences in float64."""
    up, down = (cross_entropy(logits * w, labels).mean() for w in (1 + 1e-6, 1 - 1e-6))
    return float((up - down) / 2e-6)


def test_the_invariance_penalty_is_the_product_of_the_slopes_of_two_halves() -> None:
    products = []
    for domain in range(3):
        logits, labels = of(LOGITS, domain), of(LABELS, domain)
        products.append(slope(logits[::2], labels[::2]) * slope(logits[1::2], labels[1::2]))
    np.testing.assert_allclose(found()["irm"], np.mean(products), rtol=1e-4)


def test_gradient_variances_are_those_of_the_last_layers_gradients() -> None:
    for domain in range(3):
        features, logits, labels = (of(v, domain) for v in (FEATURES, LOGITS, LABELS))
        residual = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(CLASSES)[labels]
        gradients = [np.concatenate([np.outer(f, r), r[None]]) for f, r in zip(features, residual, strict=True)]
        np.testing.assert_allclose(found()["fishr"][domain], np.var(gradients, axis=0), atol=1e-5)
    np.testing.assert_allclose(found()["fishr_without_bias"], found()["fishr"][:, :M], atol=1e-6)


def test_domain_means_are_those_of_the_domains_that_are_there() -> None:
    values = FEATURES[:, 0]
    wanted = [of(values, domain).mean() for domain in range(3)]
    np.testing.assert_allclose(found()["means"][:3], wanted, rtol=1e-5)
    np.testing.assert_allclose(found()["mean"], np.mean(wanted), rtol=1e-5)


def test_partners_are_of_the_next_domain_in_a_circle_and_of_the_same_rank() -> None:
    circles = set()
    for places in found()["partners"]:
        np.testing.assert_array_equal(places[12:], [12, 13])
        following = []
        for domain in range(3):
            mine, theirs = (np.flatnonzero(REAL & (d == KINDS)) for d in (domain, KINDS[places][domain == KINDS][0]))
            following.append(int(KINDS[theirs[0]]))
            np.testing.assert_array_equal(places[mine], theirs[np.arange(len(mine)) % len(theirs)])
        assert sorted(following) == [0, 1, 2]
        assert all(next_one != domain for domain, next_one in enumerate(following))
        circles.add(tuple(following))
    assert len(circles) == 2, "both circles of three domains come up"


@pytest.mark.parametrize(
    ("kinds", "wanted"), [([0, 2, 2, 0, 2], [1, 0, 3, 2, 0]), ([3, 3, 1, 3], [2, 2, 0, 2]), ([1, 1], [0, 1])]
)
def test_partners_in_a_batch_of_two_domains_and_of_one(kinds: list[int], wanted: list[int]) -> None:
    places = by_domain.partners(jax.random.key(0), jnp.eye(DOMAINS)[jnp.asarray(kinds)])
    np.testing.assert_array_equal(places, wanted)
