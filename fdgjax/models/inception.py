"""hFedF's client network (paper v2, appendix C.7, table 9; v1 table 7), after the Inception architecture."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.units import Layer, Unit, identity, plain_unit, widen
from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool


class InceptionModule(nn.Module):
    """1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool of the same input, side by side, then ReLU.

    Output channels: `sum(channels) + in`, since the pooled input is kept (64 -> 176 -> 288 for channels 32,
    64, 16).
    """

    channels: Sequence[int] = (32, 64, 16)
    init_name: str = "torch"
    unit: Unit = plain_unit

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H, W, sum(channels) + in]`."""
        branches = []
        for features, size in zip(self.channels, (1, 3, 5), strict=True):
            layer = partial(Conv, kernel_size=(size, size), init_name=self.init_name)
            unit = self.unit(layer, features, activation=identity, name=f"conv_{size}x{size}")
            branches.append(unit(x, train=train))
        return nn.relu(jnp.concatenate([*branches, max_pool(x, 3, 1, "SAME")], axis=-1))


class InceptionCNN(nn.Module):
    """hFedF's client network: 928,199 parameters for 3-channel images and 7 classes, no BatchNorm.

    Published for 32x32 images; the adaptive average pool takes any size from 4x4.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels and hidden features.
      dropout: rate before the first linear layer.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`; the published numbers rest on PyTorch's
        default.
      unit: the factory of all units but the last layer (see `fdgjax.models.units`). ReLUs stay where the table has
        them, after pools and concatenations, and `linear_1` has none.
    """

    classes: int
    width: float = 1.0
    dropout: float = 0.2
    init_name: str = "torch"
    unit: Unit = plain_unit

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`; dropout (rng `dropout`) only
        when `train`."""
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)

        def unit(x: jax.Array, layer: Layer, features: int, name: str) -> jax.Array:
            return self.unit(layer, widen(features, self.width), activation=identity, name=name)(x, train=train)

        x = unit(x, partial(conv, kernel_size=(3, 3)), 32, "conv_1")
        x = nn.relu(max_pool(x, 2))
        x = unit(x, partial(conv, kernel_size=(1, 1)), 32, "conv_2")
        x = unit(x, partial(conv, kernel_size=(3, 3)), 64, "conv_3")
        x = nn.relu(max_pool(x, 2))
        channels = tuple(widen(features, self.width) for features in InceptionModule.channels)
        for i in (1, 2):
            x = InceptionModule(channels, self.init_name, self.unit, name=f"inception_{i}")(x, train=train)
        x = adaptive_avg_pool(x, 3)
        x = x.reshape(x.shape[0], -1)
        x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
        x = unit(x, dense, 256, "linear_1")
        self.sow("intermediates", "features", x)
        return dense(self.classes, name="linear_2")(x)
