"""Prototypes: a client's mean features of each class, from which the server makes those that clients learn with.

    p_ik = mean of f(x) over client i's samples of class k

A client measures its prototypes on all its samples with the model that it receives, before it trains, and sends them
with its update; what the server makes of them is sent with the model of the next round.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Batch, Context, Method, Model, Prepared, PyTree, Samples, ServerStep
from fdgjax.methods.parts.extend import Extended, Fresh, aux, extend
from fdgjax.methods.parts.requirements import output_shapes


class Prototypes(NamedTuple):
    """`features`, p `[classes, m]`, zero where there is none, and the samples of each class, float32 `[classes]`; of
    several clients `[clients, ...]`."""

    features: jax.Array
    counts: jax.Array


def nothing(model: Model) -> Callable[[Fresh], Prototypes]:
    """No prototypes yet."""

    def of(fresh: Fresh) -> Prototypes:
        shapes = output_shapes(model, fresh.federation.input_shape)
        classes = shapes.logits.shape[1]
        return Prototypes(jnp.zeros((classes, shapes.features.shape[1])), jnp.zeros(classes))

    return of


def exchanging_prototypes(
    base: Method,
    model: Model,
    begin: Callable[[Fresh], PyTree],
    combine: Callable[[PyTree, Prototypes, jax.Array], PyTree],
) -> Method:
    """The base method whose clients send `Prototypes` and are sent what the server makes of them
    (`context.sent.more`).

    Args:
      base: a method without `prepare`.
      model: whose features are averaged.
      begin: what is sent in the first round, `(fresh) -> more`.
      combine: `(more, prototypes of the round's clients, their weights [clients]) -> more`, as it is sent next; a
        client of weight 0 is left out of the round.
    """
    extended = extend(base, server=begin, sent=lambda server, row: server.more, message=aux)

    def prepare(context: Context, samples: Samples) -> Prepared:
        key = jax.random.key(0)  # dropout is off: nothing is drawn from it

        def outputs(batch: Batch) -> tuple[jax.Array, jax.Array]:
            output, _ = model.apply(context.received, batch.inputs, False, key)
            counted = (batch.mask * batch.label_weight)[:, None]
            return output.features, jax.nn.one_hot(batch.labels, output.logits.shape[1]) * counted

        features, of_class = samples.each(outputs)
        counts = jnp.sum(of_class, axis=0)
        sums = jnp.matmul(of_class.T, features, precision=jax.lax.Precision.HIGHEST)
        return Prepared(aux=Prototypes(sums / jnp.where(counts > 0, counts, 1)[:, None], counts))

    def aggregate(server: Extended, clients: PyTree, messages: Extended, weights: jax.Array) -> tuple[Extended, PyTree]:
        average, info = extended.aggregate(server, clients, messages, weights)
        return Extended(average, combine(server.more, messages.more, weights)), info

    def update(server: Extended, clients: PyTree, step: Extended, server_step: ServerStep) -> tuple[Extended, PyTree]:
        server, clients = extended.update(server, clients, step.base, server_step)
        return server._replace(more=step.more), clients

    return extended._replace(prepare=prepare, aggregate=aggregate, update=update)
