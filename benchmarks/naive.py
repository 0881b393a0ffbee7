"""The networks as one would write them without `fdgjax.nn`: `flax.linen.Conv` (XLA's convolution) and its pooling.

Same parameters, names and initialisation as the originals, hence the same numbers.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn.layers import torch_uniform


def conv(inputs: int, features: int, size: int, name: str) -> nn.Conv:
    """`flax.linen.Conv` with PyTorch's initialisation."""
    init = torch_uniform(inputs * size * size)
    return nn.Conv(features, (size, size), kernel_init=init, bias_init=init, name=name)


def dense(inputs: int, features: int, name: str) -> nn.Dense:
    """`flax.linen.Dense` with PyTorch's initialisation."""
    init = torch_uniform(inputs)
    return nn.Dense(features, kernel_init=init, bias_init=init, name=name)


def adaptive_avg_pool(x: jax.Array, bins: int) -> jax.Array:
    """The mean over each of PyTorch's bins, one slice each: `[batch, H, W, channels]` -> `[batch, bins, bins,
    channels]`."""
    for axis in (1, 2):
        size = x.shape[axis]
        edges = [(i * size // bins, -((i + 1) * -size // bins)) for i in range(bins)]
        slices = [jax.lax.slice_in_dim(x, start, stop, axis=axis).mean(axis) for start, stop in edges]
        x = jnp.stack(slices, axis)
    return x


class InceptionModule(nn.Module):
    """`fdgjax.models.inception.InceptionModule` on Flax's layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H, W, in + 112]`."""
        sizes = {1: 32, 3: 64, 5: 16}
        branches = [conv(x.shape[-1], features, k, f"conv_{k}x{k}")(x) for k, features in sizes.items()]
        return nn.relu(jnp.concatenate([*branches, nn.max_pool(x, (3, 3), (1, 1), "SAME")], axis=-1))


class InceptionCNN(nn.Module):
    """`fdgjax.models.InceptionCNN` on Flax's layers."""

    classes: int
    dropout: float = 0.2

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """Images `[batch, H, W, channels]` -> logits `[batch, classes]`."""
        halve = partial(nn.max_pool, window_shape=(2, 2), strides=(2, 2))
        x = nn.relu(halve(conv(x.shape[-1], 32, 3, "conv_1")(x)))
        x = conv(32, 32, 1, "conv_2")(x)
        x = nn.relu(halve(conv(32, 64, 3, "conv_3")(x)))
        x = InceptionModule(name="inception_1")(x)
        x = InceptionModule(name="inception_2")(x)
        x = adaptive_avg_pool(x, 3).reshape(x.shape[0], -1)
        x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
        x = dense(x.shape[-1], 256, "linear_1")(x)
        return dense(256, self.classes, "linear_2")(x)
