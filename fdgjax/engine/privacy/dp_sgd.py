"""DP-SGD: local training that reveals little of each sample.

    each of the epochs * ceil(N / B) steps takes every one of the N samples with probability q = min(1, B / N):

    g_i = gradient of the loss of sample i alone;    c_i = g_i min(1, C / |g_i|)
    g   = 1 / (q N) (sum over the samples taken of c_i + N(0, z^2 C^2 I))

and g goes to the client's optimiser. Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1.
Batches vary in size, so they are processed B samples at a time, and none is truncated.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from fdgjax.contract import Batch, Context, PyTree, Trained, Variables
from fdgjax.engine.local import LocalData, LocalTraining, slice_rows, training_batch
from fdgjax.engine.privacy.noise import Privacy, clip_norm, gaussian_noise
from fdgjax.utils.random import draw_each


def train_privately(
    training: LocalTraining,
    data: LocalData,
    context: Context,
    begin: PyTree,
    key: jax.Array,
    *,
    noise_key: jax.Array,
    privacy: Privacy,
) -> Trained:
    """`train_locally` with the gradients above; the loss is the mean over the samples taken, and has no noise.

    Args:
      training, data, context, begin: as for `train_locally`, without order, others and pseudo-labels; the batch size
        is B, and as many samples are processed at a time.
      key: of the sampling. noise_key: of the noise.
      privacy: C and z.
    """
    federation, rows, count, _ = data
    batching, longest, size = training.batching, len(rows), training.batching.batch_size
    steps, most = batching.epochs * batching.steps(count), batching.epochs * batching.steps(longest)
    optimizer = optax.with_extra_args_support(training.optimizer)
    expected = jnp.maximum(jnp.minimum(size, count), 1).astype(jnp.float32)
    rate = expected / jnp.maximum(count, 1).astype(jnp.float32)

    def of_one(variables: Variables, one: Batch, key: jax.Array) -> tuple[jax.Array, PyTree]:
        alone = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one)

        def loss(params: PyTree) -> jax.Array:
            return training.objective({**variables, "params": params}, alone, key, context)[0]

        value, gradient = jax.value_and_grad(loss)(variables["params"])
        return value, clip_norm(gradient, privacy.clip)

    def step(i: jax.Array, carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        variables, state, total, seen = carry
        draw, views = jax.random.split(jax.random.fold_in(key, i))
        index = jnp.arange(longest)
        taken = (draw_each(draw, index, jax.random.uniform) < rate) & (index < count)
        number, positions = jnp.sum(taken), jnp.argsort(~taken, stable=True)

        def add(j: jax.Array, sums: tuple[jax.Array, PyTree]) -> tuple[jax.Array, PyTree]:
            here, mask = slice_rows(positions, number, j * size, size)
            view_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, i), 3), j)
            batch = training_batch(batching, federation, rows[here], mask, view_key)
            batch = batch._replace(mask=jnp.ones(size), label_weight=jnp.ones(size))
            each = jax.vmap(partial(jax.random.fold_in, views))(here)
            losses, gradients = jax.vmap(partial(of_one, variables))(batch, each)
            keep = lambda leaf: jnp.sum(jnp.where(_beside(mask, leaf), leaf, 0), axis=0)  # noqa: E731
            return optax.tree.add(sums, jax.tree.map(keep, (losses, gradients)))

        nothing = (jnp.zeros(()), optax.tree.zeros_like(variables["params"]))
        # How many are taken is random: the loop ends with them, even where clients run together.
        losses, summed = jax.lax.fori_loop(0, -(-number // size), add, nothing)
        noisy = optax.tree.add(
            summed, gaussian_noise(jax.random.fold_in(noise_key, i), summed, privacy.noise * privacy.clip)
        )
        finished = (i * batching.epochs // jnp.maximum(steps, 1)).astype(jnp.float32) / batching.epochs
        updates, state = optimizer.update(
            optax.tree.scale(1 / expected, noisy),
            state,
            variables["params"],
            round=context.round,
            done=context.round.astype(jnp.float32) + finished,
            context=context,
        )
        params = optax.apply_updates(variables["params"], updates)
        return {**variables, "params": params}, state, total + losses, seen + number

    start = (context.received, begin, jnp.zeros((), jnp.float32), jnp.zeros((), count.dtype))
    variables, state, total, seen = training.repeat(steps, most, step, start)
    mean_loss = jnp.where(seen > 0, total / jnp.maximum(seen, 1).astype(jnp.float32), jnp.nan)
    return Trained(variables, state, mean_loss, steps)


def _beside(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))
