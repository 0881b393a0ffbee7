"""Local training of which each sample shows little: DP-SGD.

    each of the epochs * ceil(N / B) steps takes every one of the N samples with probability q = min(1, B / N):

    g_i = gradient of the loss of sample i alone;    c_i = g_i min(1, C / |g_i|)
    g   = 1 / (q N) (sum over the samples taken of c_i + N(0, z^2 C^2 I))

and g goes to the client's optimiser. Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1.
Batches differ in size, so they are worked through some samples at a time, and none is cut short.
"""

from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, Objective, PyTree, Trained, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.local import Batching, augmented, slice_rows, take_batch
from fdgjax.engine.loops import Repeat, until_over
from fdgjax.engine.privacy import Privacy, clip_norm, gaussian
from fdgjax.randomness import draw_each

Number = TypeVar("Number", int, jax.Array)


def number_of_steps(batching: Batching, count: Number) -> Number:
    """Steps of all epochs over so many samples, as many as of training without noise."""
    return batching.epochs * (count // batching.batch_size if batching.drop_last else -(-count // batching.batch_size))


def train_privately(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    batching: Batching,
    federation: Federation,
    context: Context,
    begin: PyTree,
    rows: jax.Array,
    count: jax.Array,
    keys: tuple[jax.Array, jax.Array],
    privacy: Privacy,
    repeat: Repeat = until_over,
) -> Trained:
    """`train_locally` with the gradients above; the loss is the mean over the samples taken, and has no noise.

    Args:
      objective, optimizer, batching, federation, context, begin, rows, count, repeat: as for `train_locally`;
        `batching.batch_size` is B, and as many samples are worked through at a time.
      keys: of the sampling and of the noise.
      privacy: C and z.
    """
    longest, size = len(rows), batching.batch_size
    optimizer = optax.with_extra_args_support(optimizer)
    expected = jnp.maximum(jnp.minimum(size, count), 1).astype(jnp.float32)
    rate = expected / jnp.maximum(count, 1).astype(jnp.float32)
    sampling, noise = keys

    def of_one(variables: Variables, one: Batch, key: jax.Array) -> tuple[jax.Array, PyTree]:
        alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one)

        def loss(params: PyTree) -> jax.Array:
            return objective({**variables, "params": params}, alone, key, context)[0]

        value, gradient = jax.value_and_grad(loss)(variables["params"])
        return value, clip_norm(gradient, privacy.clip)

    def step(i: jax.Array, carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        variables, state, total, seen = carry
        draw, views = jax.random.split(jax.random.fold_in(sampling, i))
        index = jnp.arange(longest)
        taken = (draw_each(draw, index, jax.random.uniform) < rate) & (index < count)
        number, positions = jnp.sum(taken), jnp.argsort(~taken, stable=True)

        def add(j: jax.Array, sums: tuple[jax.Array, PyTree]) -> tuple[jax.Array, PyTree]:
            here, mask = slice_rows(positions, number, j * size, size)
            view_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(sampling, i), 3), j)
            batch = augmented(batching, take_batch(federation, rows[here], mask), view_key)
            batch = batch._replace(mask=jnp.ones(size), trust=jnp.ones(size))
            each = jax.vmap(partial(jax.random.fold_in, views))(here)
            losses, gradients = jax.vmap(partial(of_one, variables))(batch, each)
            keep = lambda leaf: jnp.sum(jnp.where(_beside(mask, leaf), leaf, 0), axis=0)  # noqa: E731
            return optax.tree.add(sums, jax.tree.map(keep, (losses, gradients)))

        nothing = (jnp.zeros(()), optax.tree.zeros_like(variables["params"]))
        # How many are taken is chance: the loop ends with them, also where clients run together.
        losses, summed = jax.lax.fori_loop(0, -(-number // size), add, nothing)
        noisy = optax.tree.add(summed, gaussian(jax.random.fold_in(noise, i), summed, privacy.noise * privacy.clip))
        updates, state = optimizer.update(
            optax.tree.scale(1 / expected, noisy), state, variables["params"], round=context.round, context=context
        )
        params = optax.apply_updates(variables["params"], updates)
        return {**variables, "params": params}, state, total + losses, seen + number

    steps = number_of_steps(batching, count)
    start = (context.received, begin, jnp.zeros((), jnp.float32), jnp.zeros((), count.dtype))
    variables, state, total, seen = repeat(steps, number_of_steps(batching, longest), step, start)
    return Trained(variables, state, total / jnp.maximum(seen, 1).astype(jnp.float32), steps)


def _beside(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
