"""Local training: epochs of minibatches over the samples of one client, or of the server; and passes over them without
training."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import Batch, Context, Objective, Order, PseudoLabels, PyTree, Samples, Trained, Variables
from fdgjax.data.augmentations.view import View
from fdgjax.data.encoding import as_inputs
from fdgjax.data.federation import Federation
from fdgjax.engine.loops import Repeat, dynamic_loop
from fdgjax.nn import with_mask
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import shuffle
from fdgjax.utils.variables import dtype_and_shape

Number = TypeVar("Number", int, np.ndarray, jax.Array)


class Batching(NamedTuple):
    """How local data become minibatches.

    epochs: passes over the samples. batch_size: samples of a minibatch. drop_last: whether a last partial batch is left
    out. augment: the random view of the images that training sees, drawn anew for each minibatch; None for the images.
    copies: how many augmented copies of each image the federation holds (`Federation.inputs`); each minibatch draws one
      for each sample instead of a view. 0 for none.
    """

    epochs: int
    batch_size: int
    drop_last: bool
    augment: View | None = None
    copies: int = 0

    def steps(self, samples: Number) -> Number:
        """The minibatches of an epoch over so many samples."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


class LocalTraining(NamedTuple):
    """How a client trains, or the server.

    objective, optimizer: what is minimised, and how.
    batching: epochs, batch size, partial batches.
    order: the order of an epoch's samples; None shuffles them.
    extra_batch: whether each minibatch brings as many further samples along, drawn from all of them.
    repeat: the loop over an epoch's minibatches.
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    batching: Batching
    order: Order | None = None
    extra_batch: bool = False
    repeat: Repeat = dynamic_loop


class LocalData(NamedTuple):
    """The samples of one client, or of the server.

    federation: holds the images and labels.
    places, length: positions of the samples, `[longest]`, and their number without padding.
    pseudo_labels: labels that replace the data's labels, `[longest]`; None for the data's.
    """

    federation: Federation
    places: jax.Array
    length: jax.Array
    pseudo_labels: PseudoLabels | None = None


def take_batch(federation: Federation, rows: jax.Array, mask: jax.Array, copy: jax.Array | None = None) -> Batch:
    """The samples at `rows` `[batch]`, or of each its augmented copy of a number from 1, `copy` `[batch]`."""
    places = rows if copy is None else rows + copy * len(federation.labels)
    inputs, labels = as_inputs(federation.inputs[places], federation.encoding), federation.labels[rows]
    labels = labels if federation.label_scale is None else federation.label_scale.standardised(labels)
    return Batch(inputs, labels, mask.astype(jnp.float32), domains=federation.domains[rows])


def training_batch(
    batching: Batching, federation: Federation, rows: jax.Array, mask: jax.Array, key: jax.Array
) -> Batch:
    """The samples at `rows` `[batch]` as training sees them, augmented by `key`."""
    if batching.copies:
        return take_batch(federation, rows, mask, jax.random.randint(key, rows.shape, 1, batching.copies + 1))
    batch = take_batch(federation, rows, mask)
    return batch._replace(inputs=batching.augment(key, batch.inputs)) if batching.augment else batch


def slice_rows(rows: jax.Array, count: jax.Array, start: jax.Array | int, size: int) -> tuple[jax.Array, jax.Array]:
    """Rows `start` to `start + size` of the first `count`, and a mask that is false beyond the last.

    Beyond the last, the rows repeat from the first, so that batch statistics see no other client's data
    (`BatchStatistics.masked` leaves them out).
    """
    positions = start + jnp.arange(size)
    return rows[positions % jnp.maximum(count, 1)], positions < count


def with_pseudo_labels(batch: Batch, pseudo_labels: PseudoLabels | None, positions: jax.Array) -> Batch:
    """The batch of the samples at `positions` of a row with the pseudo-labels generated for them, if there are any."""
    if pseudo_labels is None:
        return batch
    return batch._replace(labels=pseudo_labels.labels[positions], label_weight=pseudo_labels.label_weight[positions])


def samples_of(data: LocalData, size: int, repeat: Repeat = dynamic_loop) -> Samples:
    """A client's samples, for passes over them `size` at a time; the results for padding are zeros.

    Args:
      data: the client's samples; its pseudo-labels are not looked at, each pass may have others.
      size: samples per minibatch.
      repeat: the loop over the minibatches.
    """
    federation, rows, count, _ = data
    longest = len(rows)
    most = -(-longest // size)
    positions = jnp.arange(most * size)

    def each(function: Callable[[Batch], PyTree], pseudo_labels: PseudoLabels | None = None) -> PyTree:
        def of_batch(start: jax.Array | int) -> PyTree:
            here, mask = slice_rows(positions[:longest], count, start, size)
            return function(with_pseudo_labels(take_batch(federation, rows[here], mask), pseudo_labels, here))

        def put(i: jax.Array, done: PyTree) -> PyTree:
            insert = lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, i * size, axis=0)  # noqa: E731
            return jax.tree.map(insert, done, of_batch(i * size))

        shapes = jax.eval_shape(of_batch, 0)
        check_each(shapes, size)
        empty = jax.tree.map(lambda leaf: jnp.zeros((len(positions), *leaf.shape[1:]), leaf.dtype), shapes)
        whole = repeat(-(-count // size), most, put, empty)
        return jax.tree.map(lambda leaf: leaf[:longest], whole)

    return Samples((positions[:longest] < count).astype(jnp.float32), each)


def check_each(made: PyTree, size: int) -> None:
    """Raises a `UserError` for the first result of `Samples.each` that is not one for each sample of a minibatch."""
    for leaf in jax.tree.leaves(made):
        if leaf.shape[:1] != (size,):
            raise UserError(
                f"samples.each's function made {dtype_and_shape(leaf)} of a minibatch of {size} samples; expected a "
                f"result for each, [{size}, ...]"
            )


def check_pseudo_labels(made: PseudoLabels | None, rows: jax.Array, labels: jax.Array) -> None:
    """Raises a `UserError` for pseudo-labels that are not one class for each of a client's samples: of numbers the loss
    would be another.

    Args:
      made: what `Method.prepare` made of them.
      rows: the client's places of samples, `[longest]`.
      labels: the data's.
    """
    if made is None:
        return
    found = {"labels": made.labels, "label_weight": made.label_weight}
    kinds = {"labels": labels.dtype, "label_weight": jnp.dtype(jnp.float32)}
    for name, leaf in found.items():
        if jnp.shape(leaf) != rows.shape or not jnp.issubdtype(leaf.dtype, kinds[name].type):
            raise UserError(
                f"the method's prepare made {name} {dtype_and_shape(leaf)} for {len(rows)} samples; expected "
                f"{kinds[name]} [{len(rows)}], padding included"
            )


def train_locally(training: LocalTraining, data: LocalData, context: Context, begin: PyTree, key: jax.Array) -> Trained:
    """`epochs` passes over a client's samples, in a new order for each epoch; with pseudo-labels, over those whose
    label weight is positive.

    The number of steps follows the client's own number of samples: alone, a small client computes no padded steps
    (`dynamic_loop`); together with others its carry is held fixed once it is done. So every client does exactly its
    epochs.

    Args:
      training: objective, optimiser, minibatches.
      data: the client's samples.
      context: what this client knows; training starts from `context.received`.
      begin: the optimiser's state to start from.
      key: this client's stream for this round.
    """
    federation, rows, count, pseudo_labels = data
    check_pseudo_labels(pseudo_labels, rows, federation.labels)
    batching, size = training.batching, training.batching.batch_size
    optimizer, in_order = optax.with_extra_args_support(training.optimizer), training.order or shuffled
    labels = federation.labels[rows] if pseudo_labels is None else pseudo_labels.labels
    used = is_used(pseudo_labels, len(rows), count)
    number = jnp.sum(used)
    steps, most = batching.steps(number), batching.steps(len(rows))

    def batch_at(positions: jax.Array, mask: jax.Array, key: jax.Array) -> Batch:
        batch = training_batch(batching, federation, rows[positions], mask, key)
        return with_pseudo_labels(batch, pseudo_labels, positions)

    def epoch(carry: tuple[Variables, PyTree, jax.Array], now: tuple[jax.Array, jax.Array]) -> tuple[PyTree, None]:
        key, done = now
        order_key, step_key = jax.random.split(key)
        positions = in_order(order_key, labels, federation.domains[rows], count, size)
        check_positions(positions, rows)
        positions = used_alone(positions, used) if pseudo_labels or training.order else positions

        def step(i: jax.Array, carry: tuple[Variables, PyTree, jax.Array]) -> PyTree:
            variables, state, total = carry
            draw = lambda what: jax.random.fold_in(jax.random.fold_in(key, what), i)  # noqa: E731
            batch = batch_at(*slice_rows(positions, number, i * size, size), draw(3))
            if training.extra_batch:
                drawn = jax.random.randint(draw(2), (size,), 0, count)
                batch = batch._replace(extra_batch=batch_at(drawn, jnp.ones(size), draw(4)))
            gradient = jax.value_and_grad(
                lambda params: training.objective(
                    {**variables, "params": params}, batch, jax.random.fold_in(step_key, i), context
                ),
                has_aux=True,
            )
            with with_mask(batch.mask):
                (loss, changed), grads = gradient(variables["params"])
            updates, state = optimizer.update(
                grads, state, variables["params"], round=context.round, done=done, context=context
            )
            params = optax.apply_updates(variables["params"], updates)
            return {**variables, **changed, "params": params}, state, total + loss * jnp.sum(batch.mask)

        return training.repeat(steps, most, step, carry), None

    start = (context.received, begin, jnp.zeros((), jnp.float32))
    finished = jnp.arange(batching.epochs, dtype=jnp.float32) / batching.epochs
    (variables, state, total), _ = jax.lax.scan(
        epoch, start, (jax.random.split(key, batching.epochs), context.round.astype(jnp.float32) + finished)
    )
    seen = jnp.minimum(steps * size, number) * batching.epochs
    mean_loss = jnp.where(seen > 0, total / jnp.maximum(seen, 1).astype(jnp.float32), jnp.nan)
    return Trained(variables, state, mean_loss, steps * batching.epochs)


def check_positions(positions: jax.Array, rows: jax.Array) -> None:
    """Raises a `UserError` unless a method's order has an integer position for each of a client's samples."""
    if positions.shape != rows.shape or not jnp.issubdtype(positions.dtype, jnp.integer):
        raise UserError(
            f"the method's order got positions {dtype_and_shape(positions)} for samples {list(rows.shape)}; expected "
            "an integer position for each, padding included"
        )


def used_alone(positions: jax.Array, used: jax.Array) -> jax.Array:
    """The positions in their order, those of used samples first; a used one stands in place of any other, as padding
    stands for a sample of another client."""
    first = positions[jnp.argsort(~used[positions], stable=True)]
    return jnp.where(used[first], first, jnp.argmax(used))


def is_used(pseudo_labels: PseudoLabels | None, longest: int, count: jax.Array) -> jax.Array:
    """The samples that an epoch passes over, `[longest]`: all `count`, or those with a positive label weight."""
    real = jnp.arange(longest) < count
    return real if pseudo_labels is None else real & (pseudo_labels.label_weight > 0)


def shuffled(key: jax.Array, labels: jax.Array, domains: jax.Array, count: jax.Array, size: int) -> jax.Array:
    """All samples in random order."""
    del domains, size
    return shuffle(key, jnp.arange(len(labels)), count)
