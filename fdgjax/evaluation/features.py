"""Features of chosen samples by trained models, to be drawn and compared."""

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Model, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.local import samples_of


def features_of_rows(
    model: Model, federation: Federation, judged: list[tuple[Variables, np.ndarray]], batch_size: int
) -> list[np.ndarray]:
    """The features of samples, `[samples, m]` for each model.

    Rows are padded to the longest, so that one program serves all.

    Args:
      model: the architecture.
      federation: holds the images.
      judged: variables of a model, and the positions of its samples, each.
      batch_size: samples at a time.
    """
    longest = max((len(rows) for _, rows in judged), default=0)

    @jax.jit
    def said(variables: Variables, federation: Federation, rows: jax.Array, count: jax.Array) -> jax.Array:
        samples = samples_of(federation, rows, count, min(batch_size, longest))
        features: jax.Array = samples.each(
            lambda batch: model.apply(variables, batch.images, False, jax.random.key(0))[0].features
        )
        return features

    return [
        np.asarray(
            said(
                variables,
                federation,
                jnp.asarray(np.pad(rows, (0, longest - len(rows))), jnp.int32),
                jnp.asarray(len(rows), jnp.int32),
            )
        )[: len(rows)]
        for variables, rows in judged
    ]
