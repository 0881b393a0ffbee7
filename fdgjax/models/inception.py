"""hFedF's client network (paper v2, appendix C.7, table 9; v1 table 7), after the Inception architecture."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, flattened, last_step, through
from fdgjax.models.units import Layer, Unit, no_activation, plain_unit, widen
from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool


class InceptionModule(nn.Module):
    """1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool of the same input, in parallel, then ReLU.

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
            unit = self.unit(layer, features, activation=no_activation, name=f"conv_{size}x{size}")
            branches.append(unit(x, train=train))
        return nn.relu(jnp.concatenate([*branches, max_pool(x, 3, 1, "SAME")], axis=-1))


STAGES = ("conv_1", "conv_2", "conv_3", "inception_1", "inception_2", "linear_1")
"""`inception_2` includes the adaptive pool after it, `linear_1` the dropout before it."""


class InceptionCNN(nn.Module):
    """hFedF's client network: 928,199 parameters for 3-channel images and 7 classes, no BatchNorm.

    Published for 32x32 images; the adaptive average pool takes any size from 4x4.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels and hidden features.
      dropout: rate before the first linear layer.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`; the published results were obtained with PyTorch's default.
      unit: the factory of all units but the last layer (see `fdgjax.models.units`). ReLUs stay where the table has
        them, after pools and concatenations, and `linear_1` has none.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    dropout: float = 0.2
    init_name: str = "torch"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`; dropout (rng `dropout`) only
        when `train`."""
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)

        def unit(x: jax.Array, layer: Layer, features: int, name: str) -> jax.Array:
            return self.unit(layer, widen(features, self.width), activation=no_activation, name=name)(x, train=train)

        def square(x: jax.Array, side: int, features: int, name: str) -> jax.Array:
            return unit(x, partial(conv, kernel_size=(side, side)), features, name)

        def inception(x: jax.Array, number: int) -> jax.Array:
            channels = tuple(widen(features, self.width) for features in InceptionModule.channels)
            return InceptionModule(channels, self.init_name, self.unit, name=f"inception_{number}")(x, train=train)

        def linear(x: jax.Array) -> jax.Array:
            x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
            return unit(x, dense, 256, "linear_1")

        head = last_step(self, dense(self.classes, name="linear_2"))
        steps = (
            lambda x: Passage("map")(nn.relu(max_pool(square(x, 3, 32, "conv_1"), 2))),
            lambda x: square(x, 1, 32, "conv_2"),
            lambda x: Passage("map")(nn.relu(max_pool(square(x, 3, 64, "conv_3"), 2))),
            lambda x: Passage("map")(inception(x, 1)),
            lambda x: flattened(adaptive_avg_pool(inception(x, 2), 3)),
            linear,
            head,
        )
        return through(steps, self.part, x)
