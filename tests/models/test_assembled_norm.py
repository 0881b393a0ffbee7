"""gPerXAN's norm by its equations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models.assembled_norm import AssembledNorm
from fdgjax.utils.variables import flatten


@pytest.mark.slow
def test_the_norm_by_its_equations() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, (3, 4, 2, 2)).astype(np.float32)
    norm = AssembledNorm(use_running_average=False)
    variables: Any = norm.init(jax.random.key(0), jnp.asarray(x))
    shapes = {path: leaf.shape for path, leaf in flatten(variables).items()}
    assert shapes.pop("params/score_bn") == shapes.pop("params/score_in") == ()
    assert set(shapes.values()) == {(2,)}
    params = jax.tree.map(lambda leaf: np.asarray(rng.normal(size=leaf.shape), np.float32), variables["params"])
    y, changed = norm.apply({**variables, "params": params}, jnp.asarray(x), mutable=["batch_stats"])

    def normalised(axes: tuple[int, ...], own: dict) -> np.ndarray:
        centred = x - x.mean(axes, keepdims=True)
        return centred / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * own["scale"] + own["bias"]

    share = 1 / (1 + np.exp(params["score_in"] - params["score_bn"]))
    by_batch, by_image = normalised((0, 1, 2), params["bn"]), normalised((1, 2), params["in"])
    np.testing.assert_allclose(y, share * by_batch + (1 - share) * by_image, rtol=1e-4, atol=1e-5)
    # In evaluation BatchNorm normalises by what it kept, InstanceNorm by the image.
    statistics = jax.tree.map(np.asarray, changed["batch_stats"]["bn"])
    np.testing.assert_allclose(statistics["mean"], 0.1 * x.mean((0, 1, 2)), rtol=1e-4)
    kept = (x - statistics["mean"]) / np.sqrt(statistics["var"] + 1e-5) * params["bn"]["scale"] + params["bn"]["bias"]
    y = AssembledNorm(use_running_average=True).apply({"params": params, **changed}, jnp.asarray(x))
    np.testing.assert_allclose(np.asarray(y), share * kept + (1 - share) * by_image, rtol=1e-4, atol=1e-5)


def test_a_vector_has_batchnorm_alone() -> None:
    x = jnp.ones((3, 2))
    shapes = jax.eval_shape(AssembledNorm(use_running_average=False).init, jax.random.key(0), x)
    assert set(shapes["params"]) == {"bn"}
