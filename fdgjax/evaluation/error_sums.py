"""Sums of the errors of predicted numbers, over models and samples, on the device."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.contract import Model, Variables
from fdgjax.data.federation import Federation, Rows
from fdgjax.engine.local import slice_rows, take_batch
from fdgjax.engine.loops import Repeat
from fdgjax.evaluation.tally import by_group, filled


class ErrorSums(NamedTuple):
    """Sums over samples of squared and of absolute errors, `[..., domains]`, of standardised labels; sums of them are
    sums over more samples."""

    squared: jax.Array
    absolute: jax.Array


def error_sums(
    model: Model,
    variables: Variables,
    federation: Federation,
    rows: Rows,
    *,
    domains: int,
    batch_size: int,
    repeat: Repeat,
) -> ErrorSums:
    """Sums of one model's errors over one row of samples, batch by batch."""
    batch_size = filled(batch_size, rows)

    def add(i: jax.Array, sums: ErrorSums) -> ErrorSums:
        places, mask = slice_rows(rows.places, rows.length, i * batch_size, batch_size)
        batch, where = take_batch(federation, places, mask), federation.domains[places]
        output = model.evaluate(variables, batch.inputs)
        apart = jnp.abs(output.logits[:, 0] - batch.labels) * batch.mask
        return ErrorSums(
            sums.squared + by_group(jnp.square(apart), where, domains), sums.absolute + by_group(apart, where, domains)
        )

    empty = ErrorSums(*[jnp.zeros(domains, jnp.float32)] * 2)
    return repeat(-(-rows.length // batch_size), -(-len(rows.places) // batch_size), add, empty)
