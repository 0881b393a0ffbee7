"""Features and predictions of chosen samples by trained models, to be drawn and compared."""

import operator
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Output, PyTree, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.local import LocalData, samples_of

Evaluated = Sequence[tuple[Variables, np.ndarray]]
"""Models, each with the positions of the samples that it is given."""


def features_of_rows(model: Model, federation: Federation, evaluated: Evaluated, batch_size: int) -> list[np.ndarray]:
    """The features of samples, `[samples, m]` for each model; see `outputs_of_rows`."""
    return list(outputs_of_rows(model, federation, evaluated, batch_size, lambda output: output.features))


def classes_of_rows(model: Model, federation: Federation, evaluated: Evaluated, batch_size: int) -> list[np.ndarray]:
    """The classes predicted for samples, int `[samples]` for each model; see `outputs_of_rows`."""
    return list(
        outputs_of_rows(model, federation, evaluated, batch_size, lambda output: jnp.argmax(output.logits, axis=1))
    )


def outputs_of_rows(
    model: Model,
    federation: Federation,
    evaluated: Evaluated,
    batch_size: int,
    read: Callable[[Output], PyTree],
) -> Iterator[PyTree]:
    """What `read` takes of the model's output for samples, arrays `[samples, ...]` on the host for each model in turn.

    Rows are padded to the longest, so that one compiled program serves all.

    Args:
      model: the architecture.
      federation: holds the images.
      evaluated: each model's variables, and the positions of its samples.
      batch_size: samples at a time.
      read: of a minibatch's output.
    """
    longest = max((len(rows) for _, rows in evaluated), default=0)

    @jax.jit
    def of_model(variables: Variables, federation: Federation, rows: jax.Array, count: jax.Array) -> PyTree:
        samples = samples_of(LocalData(federation, rows, count), min(batch_size, longest))
        return samples.each(lambda batch: read(model.evaluate(variables, batch.inputs)))

    for variables, rows in evaluated:
        padded = jnp.asarray(np.pad(rows, (0, longest - len(rows))), jnp.int32)
        found = jax.device_get(of_model(variables, federation, padded, jnp.asarray(len(rows), jnp.int32)))
        yield jax.tree.map(operator.itemgetter(slice(len(rows))), found)
