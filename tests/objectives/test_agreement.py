"""Agreement of views: the supervised contrast and the Jensen-Shannon divergence by their definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.objectives import jensen_shannon, supervised_contrast

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("positives", ["others", "all"])
def test_the_supervised_contrast_by_its_sums(positives: str) -> None:
    first, second = RNG.normal(size=(2, 5, 3))
    labels, mask, temperature = np.array([0, 1, 0, 2, 1]), np.array([1, 1, 1, 1, 0]), 0.3
    real = [*range(4), *range(5, 9)]
    z = np.concatenate([first, second])
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    classes, near = np.concatenate([labels, labels]), np.exp(z @ z.T / temperature)
    terms = []
    for i in real:
        others = sum(near[i, k] for k in real if k != i)
        of_class = [p for p in real if classes[p] == classes[i] and (positives == "all" or p != i)]
        terms.append(-np.mean([np.log(near[i, p] / others) for p in of_class]))
    got = supervised_contrast(
        jnp.float32(first),
        jnp.float32(second),
        jnp.int32(labels),
        jnp.float32(mask),
        temperature=temperature,
        positives=positives,
    )
    np.testing.assert_allclose(got, np.mean(terms), rtol=1e-5)


def test_the_divergence_by_its_definition_and_none_between_equals() -> None:
    logits, mask = RNG.normal(size=(3, 4, 2)), np.array([1, 1, 0, 1])
    p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    wanted = (p * np.log(p / p.mean(0))).sum(2).mean(0)
    got = jensen_shannon([jnp.asarray(one, jnp.float32) for one in logits], jnp.float32(mask))
    np.testing.assert_allclose(got, wanted[mask > 0].mean(), rtol=1e-5)
    same = jnp.asarray(logits[0], jnp.float32)
    np.testing.assert_allclose(jensen_shannon([same, same, same], jnp.ones(4)), 0, atol=1e-6)
