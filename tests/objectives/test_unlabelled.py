"""Objectives of samples without labels, by their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Batch, Context
from fdgjax.objectives.unlabelled import information_maximisation
from tests.toy_models import CLASSES, IMAGE, tiny_model


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_information_maximisation_by_its_formula(weight: float) -> None:
    """Certain predictions, diverse classes, and the given labels, of all but padding; by the batch's statistics."""
    model, rng = tiny_model("norm"), np.random.default_rng(0)
    variables = model.init(jax.random.key(0))
    images, mask = jnp.asarray(rng.normal(size=(6, *IMAGE)), jnp.float32), np.array([1, 1, 1, 1, 0, 1])
    batch = Batch(images, jnp.asarray(rng.integers(0, CLASSES, 6), jnp.int32), jnp.asarray(mask, jnp.float32))
    context = Context((), (), variables, jnp.int32(0))
    loss, changed = information_maximisation(model, weight)(variables, batch, jax.random.key(1), context)

    output, after = model.apply(variables, images, True, jax.random.key(1))
    logits = np.asarray(output.logits, np.float64)[mask > 0]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    certainty, diversity = -(p * np.log(p)).sum(axis=1).mean(), -(p.mean(axis=0) * np.log(p.mean(axis=0))).sum()
    labelled = -np.log(p[np.arange(len(p)), np.asarray(batch.labels)[mask > 0]]).mean()
    np.testing.assert_allclose(loss, certainty - diversity + weight * labelled, rtol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, changed["batch_stats"], after["batch_stats"])
