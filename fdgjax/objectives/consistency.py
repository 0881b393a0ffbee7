"""FDSE's consistency regularisation: running statistics of a client's features stay near the global ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.nn.normalisation import normalise
from fdgjax.registry import lookup
from fdgjax.variables import flatten

Distance = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def squared_distance(mean: jax.Array, var: jax.Array, mean_g: jax.Array, var_g: jax.Array) -> jax.Array:
    """`|m - m_g|^2 / d + ((|v|_1 - |v_g|_1) / d)^2`, FDSE, equation 6; all `[d]`."""
    # Variances are non-negative, so |v|_1 / d is their mean.
    return jnp.mean(jnp.square(mean - mean_g)) + jnp.square(jnp.mean(var) - jnp.mean(var_g))


def gaussian_divergence(mean: jax.Array, var: jax.Array, mean_g: jax.Array, var_g: jax.Array) -> jax.Array:
    """The mean over features of `KL(N(m, v) | N(m_g, v_g))`, the kind of term in FDSE's official code; all `[d]`."""
    small = jnp.finfo(var.dtype).eps
    var, var_g = var + small, var_g + small
    return jnp.mean((jnp.log(var_g / var) + (var + jnp.square(mean - mean_g)) / var_g - 1) / 2)


DISTANCES: Mapping[str, Distance] = {"paper": squared_distance, "official": gaussian_divergence}


def depth_weights(layers: int, beta: float) -> jax.Array:
    """`w_l = exp(beta l) / sum_k exp(beta k)`, l = 1..L (FDSE, equation 7), `[layers]`."""
    return jax.nn.softmax(beta * jnp.arange(1, layers + 1, dtype=jnp.float32))


def consistency_loss(
    changed: Variables, received: Variables, layers: Sequence[str], beta: float, distance: str = "paper"
) -> jax.Array:
    r"""`sum_l w_l D(running statistics of layer l, received statistics of layer l)`, FDSE, equations 6 and 7.

    The running statistics are those that the BatchNorm layers keep (equations 4 and 5: `m <- g m + (1 - g) m_batch`
    with their own momentum g, starting from the received ones), and are differentiated through the last batch only.

    Args:
      changed: the collections that a forward pass in training mode returned.
      received: the variables that the client started from.
      layers: paths of the BatchNorm layers, in order of depth.
      beta: larger values give more weight to the last layers.
      distance: entry of `DISTANCES`.

    Raises:
      UserError: unknown distance.
    """
    far = lookup("consistency", distance, DISTANCES)
    now, then = flatten(changed), flatten(received)

    def one(layer: str) -> jax.Array:
        paths = [f"batch_stats/{layer}/{name}" for name in ("mean", "var")]
        return far(*(now[path] for path in paths), *(then[path] for path in paths))

    return depth_weights(len(layers), beta) @ jnp.stack([one(layer) for layer in layers])


def consistent(
    objective: Objective, layers: Sequence[str], *, strength: float, beta: float, distance: str, first_round: int
) -> Objective:
    """`objective + strength * consistency_loss`, from round `first_round` (counted from 0) on.

    References:
      FDSE, section 4.2 and Algorithm 1, line 7.
    """

    def with_consistency(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        loss, (changed, info) = objective(variables, batch, key, context)
        term = consistency_loss(changed, context.received, layers, beta, distance)
        applied = jnp.where(context.round >= first_round, strength, 0.0)
        return loss + applied * term, (changed, info)

    return with_consistency


def statistics_only(model: Model, fixed: Sequence[str] = ()) -> Objective:
    """A zero loss: a forward pass in training mode that updates the running statistics (FDSE, Algorithm 2).

    Args:
      model: the client model.
      fixed: paths of `fdgjax.nn.BatchNorm` layers that normalise by the received statistics, as in evaluation, while
        their running statistics are updated like the others' (FDSE, Algorithm 3, line 1).
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        with nn.intercept_methods(by_fixed_statistics(context.received, fixed)):
            _, changed = model.apply(variables, batch.images, True, key)
        return jnp.zeros(()), (changed, {})

    return objective


def by_fixed_statistics(received: Variables, layers: Sequence[str]) -> Callable[..., Any]:
    """An interceptor for Flax: the BatchNorm layers at these paths update their running statistics, but normalise by
    the received ones."""
    statistics = flatten(received)

    def intercept(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        module, path = context.module, "/".join(context.module.path)
        result = call(*args, **kwargs)
        if context.method_name != "__call__" or path not in layers:
            return result
        mean, var = (statistics[f"batch_stats/{path}/{name}"] for name in ("mean", "var"))
        own = module.variables["params"]
        return normalise(args[0], mean, var, own["scale"], own["bias"], module.epsilon)

    return intercept
