"""hFedF's client network (paper v2, appendix C.7, table 9; v1 table 7), after the Inception architecture."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool


class InceptionModule(nn.Module):
    """1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool of the same input, side by side, then ReLU.

    Output channels: `sum(channels) + in`, since the pooled input is kept (64 -> 176 -> 288 for channels 32,
    64, 16).
    """

    channels: Sequence[int] = (32, 64, 16)
    init_name: str = "torch"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H, W, sum(channels) + in]`."""
        branches = [
            Conv(features, (size, size), init_name=self.init_name, name=f"conv_{size}x{size}")(x)
            for features, size in zip(self.channels, (1, 3, 5), strict=True)
        ]
        return nn.relu(jnp.concatenate([*branches, max_pool(x, 3, 1, "SAME")], axis=-1))


class InceptionCNN(nn.Module):
    """hFedF's client network: 928,199 parameters for 3-channel images and 7 classes, no BatchNorm.

    Published for 32x32 images; the adaptive average pool takes any size from 4x4.

    Attributes:
      classes: number of logits.
      dropout: rate before the first linear layer.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`; PyTorch's default is what the published numbers rest
        on.
    """

    classes: int
    dropout: float = 0.2
    init_name: str = "torch"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`; dropout (rng `dropout`) only
        when `train`."""
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)
        x = conv(32, (3, 3), name="conv_1")(x)
        x = nn.relu(max_pool(x, 2))
        x = conv(32, (1, 1), name="conv_2")(x)
        x = conv(64, (3, 3), name="conv_3")(x)
        x = nn.relu(max_pool(x, 2))
        x = InceptionModule(init_name=self.init_name, name="inception_1")(x)
        x = InceptionModule(init_name=self.init_name, name="inception_2")(x)
        x = adaptive_avg_pool(x, 3)
        x = x.reshape(x.shape[0], -1)
        x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
        x = dense(256, name="linear_1")(x)
        return dense(self.classes, name="linear_2")(x)
