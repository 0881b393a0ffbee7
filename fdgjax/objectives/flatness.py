"""FedLGF's flatness: predictions that stay the same when the last layer is perturbed where that changes them most."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Model, Objective, ObjectiveResult, Variables
from fdgjax.objectives.cross_entropy import masked_mean, mean_cross_entropy
from fdgjax.utils.variables import flatten


class Directions(NamedTuple):
    """The directions in which a last layer's kernel can be perturbed.

    shape: of a direction. unit: scales it to length 1. moved: the kernel, moved by a direction.
    """

    shape: tuple[int, ...]
    unit: Callable[[jax.Array], jax.Array]
    moved: Callable[[jax.Array], jax.Array]


SMALLEST = 1e-8
"""Added to lengths, as in the official code."""


def weight_directions(kernel: jax.Array) -> Directions:
    """Any matrix, each class of length 1; kernel `[m, classes]`."""
    return Directions(
        kernel.shape,
        lambda way: way / (jnp.linalg.norm(way, axis=0, keepdims=True) + SMALLEST),
        lambda way: kernel + way,
    )


def singular_directions(kernel: jax.Array) -> Directions:
    """Changes of the kernel's singular values, which stay non-negative; kernel `[m, classes]`."""
    left, values, right = jnp.linalg.svd(kernel, full_matrices=False)
    return Directions(
        values.shape,
        lambda way: way / (jnp.linalg.norm(way) + SMALLEST),
        lambda way: (left * jax.nn.relu(values + way)[None]) @ right,
    )


DIRECTIONS: Mapping[str, Callable[[jax.Array], Directions]] = {
    "singular": singular_directions,
    "weights": weight_directions,
}
"""How a last layer's kernel is perturbed."""


class Strengths(NamedTuple):
    """Of the perturbation: `probe`, the length of the random one at which the gradient is taken, and `radius`, that of
    the one along this gradient."""

    probe: float
    radius: float


def divergence(p: jax.Array, q: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the samples of `KL(softmax(p) || softmax(q))`; logits p, q `[batch, classes]`."""
    logs = jax.nn.log_softmax(p)
    return masked_mean(jnp.sum(jnp.exp(logs) * (logs - jax.nn.log_softmax(q)), axis=1), mask)


class Head(NamedTuple):
    """A last layer at work: its kernel `[m, classes]`, its input `[batch, m]` and its logits `[batch, classes]`."""

    kernel: jax.Array
    features: jax.Array
    logits: jax.Array


def worst_logits(
    head: Head, logits: jax.Array, mask: jax.Array, way: jax.Array, directions: Directions, strengths: Strengths
) -> jax.Array:
    """The logits of a head that is perturbed so that they differ most from `logits`, without a gradient.

        d = unit(way);    g = gradient over d of KL(softmax(logits) || softmax(head moved by probe * d))
        head moved by radius * unit(g)

    Args:
      head: the head.
      logits: `[batch, classes]`.
      mask: 1 for a sample, 0 for padding, `[batch]`.
      way: a random direction.
      directions, strengths: of the perturbation.
    """

    def moved(step: jax.Array) -> jax.Array:
        # The head is linear, so that its bias need not be known.
        return head.logits + head.features @ (directions.moved(step) - head.kernel)

    steepest = jax.grad(lambda unit: divergence(logits, moved(strengths.probe * unit), mask))(directions.unit(way))
    return jax.lax.stop_gradient(moved(strengths.radius * directions.unit(steepest)))


def flat_head(
    model: Model,
    kernel: str,
    directions: Callable[[jax.Array], Directions],
    strengths: Strengths,
    *,
    own: float,
    received: float,
) -> Objective:
    """`CE(z) + own KL(q || z) + received KL(q_received || z)` of logits z; q are the `worst_logits` of the model's own
    last layer, q_received those of the received model's, which runs as in evaluation.

    Args:
      model: the client model.
      kernel: the path of its last layer's kernel.
      directions: an entry of `DIRECTIONS`.
      strengths: of the perturbation.
      own, received: weights; a term with weight 0 is left out.
    """

    def penalty(head: Head, logits: jax.Array, mask: jax.Array, key: jax.Array) -> jax.Array:
        ways = directions(jax.lax.stop_gradient(head.kernel))
        way = jax.random.normal(key, ways.shape)
        return divergence(worst_logits(head, logits, mask, way, ways, strengths), logits, mask)

    def objective(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = model.apply(variables, batch.inputs, True, key)
        loss, logits = mean_cross_entropy(output.logits, batch), output.logits
        here, there = jax.random.split(jax.random.fold_in(key, 1))
        if own:
            head = Head(flatten(variables)[kernel], output.features, logits)
            loss += own * penalty(head, logits, batch.mask, here)
        if received:
            theirs, _ = model.apply(context.received, batch.inputs, False, key)
            head = Head(flatten(context.received)[kernel], theirs.features, theirs.logits)
            loss += received * penalty(head, logits, batch.mask, there)
        return loss, changed

    return objective
