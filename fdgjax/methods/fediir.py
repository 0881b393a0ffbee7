"""FedIIR: gradients of the classifier are pulled towards their mean over all clients, so that clients learn what
relates inputs to labels everywhere.

    G_i(w) = gradient of client i's cross-entropy with respect to the last layer
    L_i(w) = CE(w; batch) + gamma |G(w; batch) - g|^2        differentiated through G as well
    g <- beta g + (1 - beta) sum_i p_i G_i(w)                from g = 0; w as the round's clients received it

The last layer is linear in its input, the features f, so its gradient has a closed form:

    G = mean f (softmax(z) - y)',    and mean (softmax(z) - y) for the bias;    z the logits, y the label as a vector

A client measures G_i on its own data before it trains and sends it with its update; g is sent with the model of the
next round. With gamma = 0 it is FedAvg. w predicts for an unseen domain.

Guo, Guo, Cao, Wu and Chang, "Out-of-distribution generalization of federated learning via implicit invariant
relationships", ICML 2023, and its official code, which spends a second exchange on g in every round.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.aggregation.weighting import normalise_weights, weighted_sum
from fdgjax.contract import (
    Batch,
    Context,
    Method,
    Model,
    Objective,
    ObjectiveResult,
    Prepared,
    PyTree,
    Samples,
    Setup,
)
from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, Fresh, aux, extend, keeping_more
from fdgjax.methods.parts.hyper import hyper
from fdgjax.methods.parts.requirements import CLASSES, FEATURES, output_shapes
from fdgjax.objectives import mean_cross_entropy

OFFICIAL = "Guo et al., official code"


@dataclasses.dataclass(frozen=True)
class FedIIR(FedAvg):
    """FedAvg's hyperparameters and the penalty's.

    penalty: gamma. ema: beta, the share of the former mean gradient that stays.
    """

    penalty: float = hyper(1e-3, search=(1e-2, 5e-3, 1e-3, 5e-4, 1e-4), source=f"{OFFICIAL}: 1e-3 for PACS")
    ema: float = hyper(0.95, most=1, search=(0.9, 0.95, 0.99), source=f"{OFFICIAL}: 0.95")


class HeadGradient(NamedTuple):
    """The gradient of a mean cross-entropy with respect to the last layer: `kernel` `[m, classes]`, `bias`
    `[classes]`."""

    kernel: jax.Array
    bias: jax.Array


def head_gradient(features: jax.Array, logits: jax.Array, labels: jax.Array, counted: jax.Array) -> HeadGradient:
    """The gradient of `mean_cross_entropy` with respect to a last layer that is linear in `features`.

    Args:
      features: `[batch, m]`.
      logits: `[batch, classes]`.
      labels: int32 `[batch]`.
      counted: each sample's weight in the mean, `[batch]`.
    """
    residuals = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1], dtype=logits.dtype)
    shares = counted / jnp.maximum(jnp.sum(counted), 1)
    weighed = shares[:, None] * residuals
    return HeadGradient(features.T @ weighed, jnp.sum(weighed, axis=0))


def fediir(setup: Setup, h: FedIIR) -> Method:
    """FedAvg with aligned gradients of the last layer; the server keeps their mean."""
    model = setup.model

    def nothing(fresh: Fresh) -> HeadGradient:
        shapes = output_shapes(model, fresh.federation.input_shape)
        classes = shapes.logits.shape[1]
        return HeadGradient(jnp.zeros((shapes.features.shape[1], classes)), jnp.zeros(classes))

    extended = extend(fedavg(setup, h), server=nothing, sent=lambda server, row: server.more, message=aux)

    def prepare(context: Context, samples: Samples) -> Prepared:
        def outputs(batch: Batch) -> tuple[jax.Array, ...]:
            output = model.evaluate(context.received, batch.inputs)
            return output.features, output.logits, batch.labels, batch.mask * batch.label_weight

        features, logits, labels, counted = samples.each(outputs)
        return Prepared(aux=head_gradient(features, logits, labels, counted * samples.mask))

    def aggregate(server: Extended, clients: PyTree, messages: Extended, weights: jax.Array) -> tuple[Extended, PyTree]:
        average, info = extended.aggregate(server, clients, messages, weights)
        now = weighted_sum(messages.more, normalise_weights(weights, len(weights)))
        beta = jnp.where(jnp.any(weights > 0), jnp.asarray(h.ema), 1.0)
        return Extended(average, jax.tree.map(lambda g, one: beta * g + (1 - beta) * one, server.more, now)), info

    return extended._replace(
        objective=gradient_aligned(model, h.penalty),
        prepare=prepare,
        aggregate=aggregate,
        update=keeping_more(extended),
    )


def gradient_aligned(model: Model, penalty: float) -> Objective:
    """Cross-entropy and the squared distance of its last layer's gradient from the mean one."""

    def objective(variables: PyTree, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        output, changed = model.apply(variables, batch.inputs, True, key)
        loss = mean_cross_entropy(output.logits, batch)
        if penalty:
            own = head_gradient(output.features, output.logits, batch.labels, batch.mask * batch.label_weight)
            gaps = jax.tree.map(lambda g, mean: jnp.sum((g - mean) ** 2), own, context.sent.more)
            loss += penalty * (gaps.kernel + gaps.bias)
        return loss, changed

    return objective


ENTRY = Entry(
    "fediir",
    FedIIR,
    fediir,
    "the classifier's gradients pulled to their mean (Guo et al., 2023)",
    title="FedIIR",
    needs=(CLASSES, FEATURES),
)
