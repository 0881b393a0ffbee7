"""Objectives that adapt a trained model to unlabelled images."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.nn import BatchStatistics, with_statistics
from fdgjax.objectives.cross_entropy import masked_mean, mean_cross_entropy

BY_BATCH = BatchStatistics(masked=True)
"""BatchNorm follows each batch's own samples, whatever it does in training."""


def entropy(model: Model) -> Objective:
    """`mean_i H(p_i)`, p_i the predictions in training mode and H(p) = -sum_k p_k log p_k, in nats.

    BatchNorm normalises by the batch's samples, also where training left its statistics as they were.

    References:
      Wang et al., "Tent: fully test-time adaptation by entropy minimization", ICLR 2021, equation 1.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        with with_statistics(BY_BATCH):
            output, changed = model.apply(variables, batch.inputs, True, key)
        return masked_mean(entropies(output.logits), batch.mask), changed

    return objective


def information_maximisation(model: Model, weight: float) -> Objective:
    """`mean_i H(p_i) - H(mean_i p_i) + weight * cross-entropy with the batch's labels`: certain predictions, of diverse
    classes.

    References:
      Liang et al., "Do we really need to access the source data?", ICML 2020, equations 3 and 7.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        output, changed = model.apply(variables, batch.inputs, True, key)
        share = batch.mask / jnp.maximum(jnp.sum(batch.mask), 1)
        mean = share @ jax.nn.softmax(output.logits)
        diversity = -jnp.sum(mean * jnp.log(jnp.maximum(mean, jnp.finfo(mean.dtype).tiny)))
        certainty = masked_mean(entropies(output.logits), batch.mask)
        return certainty - diversity + weight * mean_cross_entropy(output.logits, batch), changed

    return objective


def entropies(logits: jax.Array) -> jax.Array:
    """`H(softmax(z_i))` of each sample, in nats, `[batch]`; logits `[batch, classes]`."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=1)


def replaced_statistics(model: Model) -> Objective:
    """A zero loss: a forward pass after which `batch_stats` is the mean of the statistics of all batches so far, each
    weighted by its samples, whatever they were before. BatchNorm layers run as in training, dropout as in evaluation.

    The variables have one more collection, `seen`, a float32 scalar that counts the samples and begins with 0. The
    update `m s + (1 - m) b` of a layer's running statistics s by a batch's b is affine, whatever its m: its value at
    s = 0 and its derivative give b. Statistics that the pass leaves alone (m = 1), as of a frozen layer, stay.
    """

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        del context
        bare = {name: leaf for name, leaf in variables.items() if name != "seen"}

        def updated(statistics: Variables) -> Variables:
            with with_statistics(BY_BATCH), nn.intercept_methods(passing_dropout):
                _, changed = model.apply({**bare, "batch_stats": statistics}, batch.inputs, True, key)
            return changed["batch_stats"]

        zeros, ones = (jax.tree.map(fill, bare["batch_stats"]) for fill in (jnp.zeros_like, jnp.ones_like))
        new, kept = jax.jvp(updated, (zeros,), (ones,))
        here = jnp.sum(batch.mask)
        seen = variables["seen"] + here
        share = here / jnp.maximum(seen, 1)

        def mean(old: jax.Array, b: jax.Array, m: jax.Array) -> jax.Array:
            moved = m < 1
            return jnp.where(moved, old + share * (b / jnp.where(moved, 1 - m, 1) - old), old)

        replaced = jax.tree.map(mean, bare["batch_stats"], new, kept)
        return jnp.zeros(()), {"batch_stats": replaced, "seen": seen}

    return objective


def passing_dropout(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
    """An interceptor for Flax that leaves out dropout."""
    if isinstance(context.module, nn.Dropout) and context.method_name == "__call__":
        return args[0] if args else kwargs["inputs"]
    return call(*args, **kwargs)
