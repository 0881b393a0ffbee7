"""Sharpness-aware objectives: the gradient of an objective at a point near the parameters where its value is higher."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Objective, ObjectiveResult, PyTree, Variables

Scale = Callable[[PyTree], PyTree]
"""The diagonal of ASAM's T_w, a tree like the parameters."""


def perturbation(direction: PyTree, radius: jax.Array | float, norm: Callable[[PyTree], jax.Array]) -> PyTree:
    """`radius * direction / norm(direction)`, zero where the direction is zero; without a gradient."""
    length = norm(direction)
    factor = jnp.where(length > 0, radius / jnp.where(length > 0, length, 1), 0)
    return jax.lax.stop_gradient(jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, direction))


def sharpness_aware(objective: Objective, radius: jax.Array | float, scale: Scale | None = None) -> Objective:
    """An objective with the value of `objective` at w and its gradient at `w + eps`.

        eps = rho T^2 g / |T g|,    g = gradient of the objective at w

    The norm is that of all parameters together. Both gradients are of the same minibatch and random key. BatchNorm's
    running statistics are those of the pass at w, the point that is kept.

    Args:
      objective: any objective.
      radius: rho.
      scale: `params -> T`; None for the identity.

    References:
      SAM: Foret et al., "Sharpness-aware minimization for efficiently improving generalization", 2021, equation 2.
      ASAM: Kwon et al., "ASAM: adaptive sharpness-aware minimization for scale-invariant learning of deep neural
      networks", 2021.
    """

    def sharp(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        def at(params: PyTree) -> ObjectiveResult:
            return objective({**variables, "params": params}, batch, key, context)

        here = jax.lax.stop_gradient(variables["params"])
        (loss, changed), gradient = jax.value_and_grad(at, has_aux=True)(here)
        factors = scale(here) if scale else optax.tree.ones_like(here)
        eps = perturbation(jax.tree.map(jnp.multiply, factors, gradient), radius, optax.tree.norm)
        climbed, _ = at(jax.tree.map(lambda w, t, e: w + t * e, variables["params"], factors, eps))
        return climbed + jax.lax.stop_gradient(loss - climbed), changed

    return sharp


def moved_back(
    objective: Objective,
    radius: jax.Array | float,
    previous: Callable[[Context], PyTree],
    norm: Callable[[PyTree], jax.Array],
) -> Objective:
    """The objective at `w + rho (w_previous - w_received) / norm(w_previous - w_received)`; at w in round 0, and where
    both are equal.

    The received model's last change, reversed, stands for the direction in which the loss over all clients increases.

    Args:
      objective: any objective.
      radius: rho.
      previous: `context -> params`, those that the client received in the last round it took part in.
      norm: of a tree.

    References:
      Fan et al., "Locally estimated global perturbations are better than local perturbations for federated
      sharpness-aware minimization", ICML 2024.
    """

    def moved(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        back = optax.tree.sub(previous(context), context.received["params"])
        # Before round 1 a model differs from the initial one by rounding, or by training at the server.
        eps = jax.tree.map(lambda e: jnp.where(context.round > 0, e, 0), perturbation(back, radius, norm))
        params = jax.tree.map(jnp.add, variables["params"], eps)
        return objective({**variables, "params": params}, batch, key, context)

    return moved
