"""FedLGF's perturbed last layer: the official code's logits, and none without a radius."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.objectives.flatness import DIRECTIONS, Head, Strengths, divergence, worst_logits
from tests.conformance import torch_numbers


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "official"), [("weights", "weight"), ("singular", "singular")])
def test_the_worst_logits_are_the_official_codes(kind: str, official: str) -> None:
    stored = {name: jnp.asarray(value, jnp.float32) for name, value in torch_numbers("flatness").items()}
    features, kernel = stored["features"], stored["kernel"]
    head = Head(kernel, features, features @ kernel + stored["bias"][None])
    mask, way = jnp.ones(len(features)), stored[f"{official}_way"]
    probe, radius = map(float, stored[f"{official}_strengths"])
    directions = DIRECTIONS[kind](kernel)
    assert directions.shape == way.shape

    def worst(radius: Any, features: jax.Array = features, mask: jax.Array = mask) -> jax.Array:
        given = head._replace(features=features)
        return worst_logits(given, stored["logits"], mask, way, directions, Strengths(probe, radius))

    np.testing.assert_allclose(worst(radius), stored[f"{official}_logits"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(worst(jnp.float32(0)), head.logits, rtol=1e-5, atol=1e-5)
    assert not np.any(jax.grad(lambda given: jnp.sum(worst(radius, given)))(features)), "they are constants"
    # Padding is looked at by nobody else: the others' logits do not depend on it.
    some = mask.at[-1].set(0)
    changed = worst(radius, features.at[-1].set(7.0), some)
    np.testing.assert_allclose(changed[:-1], worst(radius, features, some)[:-1], rtol=1e-6)


def test_the_divergence_by_hand_and_zero_between_equal_predictions() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.normal(size=(2, 5, 3))
    softmax = [np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in (p, q)]
    each = (softmax[0] * np.log(softmax[0] / softmax[1])).sum(1)
    mask = np.array([1.0, 1, 0, 1, 0])
    p, q = jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32)
    found = divergence(p, q, jnp.asarray(mask, jnp.float32))
    np.testing.assert_allclose(found, (each * mask).sum() / 3, rtol=1e-5)
    np.testing.assert_allclose(divergence(p, p + 1, jnp.asarray(mask, jnp.float32)), 0, atol=1e-6)
