"""Adapting a model to an unseen domain without its labels, before it is tested there."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import (
    AdaptFn,
    Context,
    Objective,
    PseudoLabels,
    PyTree,
    Scope,
    Unlabelled,
    Variables,
)
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.local import Batching, LocalData, LocalTraining, samples_of, slice_rows, train_locally
from fdgjax.engine.loops import Repeat


def adapt(
    function: AdaptFn,
    variables: Variables,
    rows: Rows,
    *,
    federation: Federation,
    batch_size: int,
    round_: jax.Array,
    key: jax.Array,
    repeat: Repeat,
) -> Variables:
    """The variables after adaptation to one row of samples, whose labels are all zero, so that the true ones cannot
    reach the model.

    Args:
      function: the adaptation.
      variables: where to start.
      rows: the unseen domain's samples, one row.
      federation: the data.
      batch_size: samples per step.
      round_: of the state that is evaluated, for learning rates that decay.
      key: order of the samples, dropout.
      repeat: the loop over minibatches.

    References:
      FDSE, Algorithms 2 and 3.
    """
    data = LocalData(federation._replace(labels=jnp.zeros_like(federation.labels)), rows.places, rows.length)

    def fit(
        variables: Variables,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        epochs: int,
        pseudo_labels: PseudoLabels | None = None,
    ) -> Variables:
        if not epochs:
            return variables
        training = LocalTraining(objective, optimizer, Batching(epochs, batch_size, drop_last=False), repeat=repeat)
        begin = optimizer.init(variables["params"])
        return train_locally(
            training, data._replace(pseudo_labels=pseudo_labels), Context({}, {}, variables, round_), begin, key
        ).variables

    return function(variables, Unlabelled(samples_of(data, batch_size, repeat), fit))


def count_adapted(
    adapted: Callable[[Variables, Rows], Variables],
    count: Callable[..., PyTree],
    variables: Variables,
    rows: Rows,
    scope: Scope,
    *,
    batch_size: int,
    repeat: Repeat,
) -> PyTree:
    """Sums over one row of samples, each counted with the model that was adapted to it.

    Args:
      adapted: the variables adapted to a row of samples.
      count: `(variables, rows=rows) -> sums` over a row of samples.
      variables: the trained model.
      rows: the samples.
      scope: to which samples the model is adapted at a time.
      batch_size: samples of a batch, where the scope has batches.
      repeat: the loop over batches.
    """
    if not scope.batched:
        return count(adapted(variables, rows), rows=rows)

    def add(i: jax.Array, carry: tuple[Variables, PyTree]) -> tuple[Variables, PyTree]:
        latest, sums = carry
        places, mask = slice_rows(rows.places, rows.length, i * batch_size, batch_size)
        batch = Rows(places, jnp.sum(mask, dtype=jnp.int32))
        fitted = adapted(latest if scope.carried else variables, batch)
        return fitted, jax.tree.map(jnp.add, sums, count(fitted, rows=batch))

    shapes = jax.eval_shape(lambda rows: count(variables, rows=rows), rows)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    _, sums = repeat(-(-rows.length // batch_size), -(-len(rows.places) // batch_size), add, (variables, empty))
    return sums
