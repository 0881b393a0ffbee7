"""Local training, written once: epochs of shuffled minibatches over one client's rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Objective, PyTree, Trained, Variables
from fdgjax.federation import Federation
from fdgjax.randomness import shuffle


class Batching(NamedTuple):
    """How local data become minibatches: epochs, samples a batch, and whether a last partial batch is left out."""

    epochs: int
    batch_size: int
    drop_last: bool


def take_batch(federation: Federation, rows: jax.Array, mask: jax.Array) -> Batch:
    """The samples at `rows` `[batch]`: images scaled from uint8 to [-1, 1] where they are used, so that they travel
    and rest as bytes."""
    images = federation.images[rows].astype(jnp.float32) / 127.5 - 1.0
    return Batch(images, federation.labels[rows], mask.astype(jnp.float32))


def slice_rows(rows: jax.Array, count: jax.Array, start: jax.Array | int, size: int) -> tuple[jax.Array, jax.Array]:
    """Rows `start` to `start + size` of the first `count`, and a mask that is false beyond the last.

    Beyond the last the rows begin again, so that batch statistics see nobody else's data.
    """
    positions = start + jnp.arange(size)
    return rows[positions % jnp.maximum(count, 1)], positions < count


def train_locally(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    batching: Batching,
    federation: Federation,
    context: Context,
    begin: PyTree,
    rows: jax.Array,
    count: jax.Array,
    key: jax.Array,
) -> Trained:
    """`epochs` passes over a client's `count` samples, in an order drawn anew for each epoch.

    The number of steps follows the client's own `count` (a loop whose length is data): alone, a short client does no
    padded work; under `vmap` its carry is held fixed once it is done. So every client does exactly its epochs.

    Args:
      objective, optimizer: what is minimised, and how.
      batching: epochs, batch size, partial batches.
      federation: the data.
      context: what this client knows; training starts from `context.received`.
      begin: the optimiser's state to start from.
      rows, count: the client's samples, `[longest]` and how many of them are real.
      key: this client's stream for this round.
    """
    size, optimizer = batching.batch_size, optax.with_extra_args_support(optimizer)
    steps = count // size if batching.drop_last else -(-count // size)

    def epoch(carry: tuple[Variables, PyTree, jax.Array], key: jax.Array) -> tuple[PyTree, None]:
        order_key, step_key = jax.random.split(key)
        order = shuffle(order_key, rows, count)

        def step(i: jax.Array, carry: tuple[Variables, PyTree, jax.Array]) -> PyTree:
            variables, state, total = carry
            batch = take_batch(federation, *slice_rows(order, count, i * size, size))
            gradient = jax.value_and_grad(
                lambda params: objective(
                    {**variables, "params": params}, batch, jax.random.fold_in(step_key, i), context
                ),
                has_aux=True,
            )
            (loss, (changed, _)), grads = gradient(variables["params"])
            updates, state = optimizer.update(grads, state, variables["params"], round=context.round)
            params = optax.apply_updates(variables["params"], updates)
            return {**variables, **changed, "params": params}, state, total + loss * jnp.sum(batch.mask)

        return jax.lax.fori_loop(0, steps, step, carry), None

    start = (context.received, begin, jnp.zeros((), jnp.float32))
    (variables, state, total), _ = jax.lax.scan(epoch, start, jax.random.split(key, batching.epochs))
    seen = jnp.minimum(steps * size, count) * batching.epochs
    mean_loss = total / jnp.maximum(seen, 1).astype(jnp.float32)
    return Trained(variables, state, mean_loss, steps * batching.epochs)
