"""Sharpness-aware objectives on a quadratic, by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fdgjax.contract import Batch, Context, ObjectiveResult
from fdgjax.objectives import moved_back, sharpness_aware

A = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])
W, RHO, ETA = np.array([0.3, -1.0, 2.0]), 0.7, 0.2
BATCH = Batch(jnp.zeros((1, 1)), jnp.zeros(1, jnp.int32), jnp.ones(1))
CONTEXT = Context((), (), {}, jnp.int32(0))


def quadratic(variables: Any, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
    """`1/2 w'Aw`, and where it was looked at."""
    del batch, key, context
    w = jnp.concatenate([variables["params"]["a"], variables["params"]["b"]])
    return 0.5 * w @ jnp.asarray(A, jnp.float32) @ w, {"seen": w}


@pytest.mark.slow
@pytest.mark.parametrize("eta", [None, ETA])
def test_the_gradient_is_that_of_the_worst_point_nearby_and_the_rest_is_of_w(eta: float | None) -> None:
    scale = (lambda params: jax.tree.map(lambda leaf: jnp.abs(leaf) + eta, params)) if eta else None
    sharp = sharpness_aware(quadratic, RHO, scale)
    params = {"a": jnp.asarray(W[:1], jnp.float32), "b": jnp.asarray(W[1:], jnp.float32)}

    def at(params: Any) -> Any:
        return sharp({"params": params}, BATCH, jax.random.key(0), CONTEXT)

    (loss, changed), gradient = jax.value_and_grad(at, has_aux=True)(params)
    t, g = (np.abs(W) + eta if eta else 1.0), A @ W
    wanted = A @ (W + RHO * t**2 * g / np.linalg.norm(t * g))
    np.testing.assert_allclose(np.concatenate([gradient["a"], gradient["b"]]), wanted, rtol=1e-6)
    np.testing.assert_allclose(loss, 0.5 * W @ A @ W, rtol=1e-6)
    np.testing.assert_allclose(changed["seen"], W, rtol=1e-7)


def test_a_gradient_of_zero_and_a_model_that_did_not_move_give_no_direction() -> None:
    zero = {"params": {"a": jnp.zeros(1), "b": jnp.zeros(2)}}
    context = CONTEXT._replace(received=zero)
    back = moved_back(quadratic, RHO, lambda context: zero["params"], optax.tree.norm)
    for objective in (sharpness_aware(quadratic, RHO), back):
        found = jax.value_and_grad(
            lambda params, objective=objective: objective({"params": params}, BATCH, jax.random.key(0), context)[0]
        )(zero["params"])
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(found))
