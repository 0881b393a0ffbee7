"""FDSE's consistency regularisation: running statistics of a client's features stay near the global ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.nn.normalisation import normalise_parts
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten

Term = Callable[[Variables, Variables, Variables], tuple[jax.Array, Variables]]
"""`(variables before a forward pass, collections it changed, variables received) -> (term, its own collections)`."""

MOMENTUM = 0.9
"""Of BN_dfe, as the share of the running statistics that stays: PyTorch's default."""

SMALL = 1e-8
"""Added to variances, as in the official code."""

CARRIED: Mapping[str, Variables] = {
    "official": {"carried": {name: np.zeros((), np.float32) for name in ("mean", "var", "begun")}}
}
"""The collections that a term carries from batch to batch, with their values at the beginning of local training; by the
term's name."""


def squared_distance(mean: jax.Array, var: jax.Array, mean_g: jax.Array, var_g: jax.Array) -> jax.Array:
    """`|m - m_g|^2 / d + ((|v|_1 - |v_g|_1) / d)^2`, FDSE, equation 6; all `[d]`."""
    # Variances are non-negative, so |v|_1 / d is their mean.
    return jnp.mean(jnp.square(mean - mean_g)) + jnp.square(jnp.mean(var) - jnp.mean(var_g))


def depth_weights(layers: int, beta: float) -> jax.Array:
    """`w_l = exp(beta l) / sum_k exp(beta k)`, l = 1..L (FDSE, equation 7), `[layers]`."""
    return jax.nn.softmax(beta * jnp.arange(1, layers + 1, dtype=jnp.float32))


def consistency_loss(changed: Variables, received: Variables, layers: Sequence[str], beta: float) -> jax.Array:
    r"""`sum_l w_l D(running statistics of layer l, received statistics of layer l)`, FDSE, equations 6 and 7.

    The running statistics are those that the BatchNorm layers keep (equations 4 and 5: `m <- g m + (1 - g) m_batch`
    with their own momentum g, starting from the received ones), and are differentiated through the last batch only.

    Args:
      changed: the collections that a forward pass in training mode returned.
      received: the variables that the client started from.
      layers: paths of the BatchNorm layers, in order of depth.
      beta: larger values give more weight to the last layers.
    """
    now, then = flatten(changed), flatten(received)

    def one(layer: str) -> jax.Array:
        mean, var = f"batch_stats/{layer}/mean", f"batch_stats/{layer}/var"
        return squared_distance(now[mean], now[var], then[mean], then[var])

    return depth_weights(len(layers), beta) @ jnp.stack([one(layer) for layer in layers])


def paper_term(layers: Sequence[str], beta: float) -> Term:
    """`consistency_loss`, which carries nothing from batch to batch."""
    return lambda variables, changed, received: (consistency_loss(changed, received, layers, beta), {})


def official_term(layers: Sequence[str], beta: float) -> Term:
    r"""What FDSE's official code minimises instead.

        sum_l w_l mean_c [ (log(v / v_lc) + v_lc / v) / 2  +  (m_lc^2 - m^2) / (2 v) ]

    m_lc and v_lc are the received statistics of channel c of layer l. m and v are two numbers for all channels, layers
    and batches: `m <- g m + (1 - g) mean_c b_c`, `v <- g v + (1 - g) var_c b_c` (unbiased) layer after layer, b_c being
    the mean of channel c in the batch; they begin with the first layer of the first batch, and are differentiated
    through the batch alone. As m^2 has a negative sign, the term is no distance, and is not bounded from below.

    References:
      FDSE's official code (FLGo), `Client.train`.
    """
    weights = depth_weights(len(layers), beta)

    def term(variables: Variables, changed: Variables, received: Variables) -> tuple[jax.Array, Variables]:
        before, now, then = (flatten(one) for one in (variables, changed, received))
        mean, var, begun = (variables["carried"][name] for name in ("mean", "var", "begun"))
        total = jnp.zeros(())
        for weight, layer in zip(weights, layers, strict=True):
            path, variance = (f"batch_stats/{layer}/{name}" for name in ("mean", "var"))
            batch = (now[path] - MOMENTUM * before[path]) / (1 - MOMENTUM)
            kept = MOMENTUM * begun
            mean = kept * mean + (1 - kept) * jnp.mean(batch)
            spread = jnp.sum(jnp.square(batch - jnp.mean(batch))) / max(batch.size - 1, 1)
            var, begun = kept * var + (1 - kept) * spread, jnp.ones(())
            v, v_g = var + SMALL, then[variance] + SMALL
            each = (jnp.log(v / v_g) + v_g / v) / 2 + (jnp.square(then[path]) - jnp.square(mean)) / (2 * v)
            total += weight * jnp.mean(each)
        return total, {"carried": {"mean": mean, "var": var, "begun": begun}}

    return term


TERMS: Mapping[str, Callable[[Sequence[str], float], Term]] = {"paper": paper_term, "official": official_term}
"""Consistency terms from the paths of the BatchNorm layers, in order of depth, and beta."""


def consistent(
    objective: Objective, layers: Sequence[str], *, strength: float, beta: float, term: str, first_round: int
) -> Objective:
    """`objective + strength * term`, from round `first_round` (counted from 0) on; `term` is an entry of `TERMS`.

    Raises:
      UserError: unknown term.

    References:
      FDSE, section 4.2 and Algorithm 1, line 7.
    """
    of_layers = lookup("consistency", term, TERMS)(layers, beta)

    def with_consistency(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        bare = {name: leaf for name, leaf in variables.items() if name != "carried"}
        loss, changed = objective(bare, batch, key, context)
        value, carried = of_layers(variables, changed, context.received)
        applied = jnp.where(context.round >= first_round, strength, 0.0)
        return loss + applied * value, {**changed, **carried}

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
            _, changed = model.apply(variables, batch.inputs, True, key)
        return jnp.zeros(()), changed

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
        return normalise_parts(args[0], mean, var, own["scale"], own["bias"], module.epsilon)

    return intercept
