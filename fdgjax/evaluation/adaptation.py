"""Adapting a model to an unseen domain without its labels, before it is tested there."""

import jax
import jax.numpy as jnp

from fdgjax.contract import Adaptation, Context, Variables
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.local import Batching, LocalData, LocalTraining, train_locally
from fdgjax.engine.loops import Repeat


def adapt(
    adaptation: Adaptation,
    variables: Variables,
    federation: Federation,
    rows: Rows,
    *,
    batch_size: int,
    round_: jax.Array,
    key: jax.Array,
    repeat: Repeat,
) -> Variables:
    """The variables after the adaptation's epochs over one row of samples.

    The objective receives labels that are all zero, so that the true ones cannot reach the model.

    Args:
      adaptation: objective, optimiser, and the variables that result.
      variables: where to start.
      federation: the data.
      rows: the unseen domain's samples, one row.
      batch_size: samples per step.
      round_: of the state that is evaluated, for learning rates that decay.
      key: order of the samples, dropout.
      repeat: the loop over minibatches.

    References:
      FDSE, Algorithms 2 and 3.
    """
    blind = federation._replace(labels=jnp.zeros_like(federation.labels))
    batching = Batching(adaptation.epochs, batch_size, drop_last=False)
    trained = train_locally(
        LocalTraining(adaptation.objective, adaptation.optimizer, batching, repeat=repeat),
        LocalData(blind, rows.places, rows.length),
        Context({}, {}, variables, round_),
        adaptation.optimizer.init(variables["params"]),
        key,
    )
    return adaptation.finish(variables, trained.variables)
