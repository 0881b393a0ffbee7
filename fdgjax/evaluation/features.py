"""Features of chosen samples by trained models, to be drawn and compared."""

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.local import samples_of


def features_of_rows(
    model: Model, federation: Federation, evaluated: list[tuple[Variables, np.ndarray]], batch_size: int
) -> list[np.ndarray]:
    """The features of samples, `[samples, m]` for each model.

    Rows are padded to the longest, so that one compiled program serves all.

    Args:
      model: the architecture.
      federation: holds the images.
      evaluated: each model's variables, and the positions of its samples.
      batch_size: samples at a time.
    """
    longest = max((len(rows) for _, rows in evaluated), default=0)

    @jax.jit
    def of_model(variables: Variables, federation: Federation, rows: jax.Array, count: jax.Array) -> jax.Array:
        samples = samples_of(federation, rows, count, min(batch_size, longest))
        features: jax.Array = samples.each(
            lambda batch: model.apply(variables, batch.images, False, jax.random.key(0))[0].features
        )
        return features

    return [
        np.asarray(
            of_model(
                variables,
                federation,
                jnp.asarray(np.pad(rows, (0, longest - len(rows))), jnp.int32),
                jnp.asarray(len(rows), jnp.int32),
            )
        )[: len(rows)]
        for variables, rows in evaluated
    ]
