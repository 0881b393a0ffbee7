"""VGG (Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015), VGG-11 as
torchvision's."""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
from jax.nn import initializers

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, check_image_size, flattened, last_step, through
from fdgjax.models.units import Unit, plain_unit, widen
from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool
from fdgjax.nn.layers import Initializer


class VGGConv(NamedTuple):
    """A 3x3 convolution, and whether a 2x2 max-pool follows its ReLU."""

    features: int
    pool: bool


ROWS = (
    VGGConv(64, True),
    VGGConv(128, True),
    VGGConv(256, False),
    VGGConv(256, True),
    VGGConv(512, False),
    VGGConv(512, True),
    VGGConv(512, False),
    VGGConv(512, True),
)
"""Configuration A of the paper's Table 1."""

BINS = 7
"""Bins of the adaptive average pool, along each axis."""

STAGES = (*(f"conv_{i}" for i in range(1, len(ROWS) + 1)), "hidden_1", "hidden_2")
"""`conv_8` includes the adaptive pool after it, the linear layers the dropout after them."""

SMALLEST = 2 ** sum(row.pool for row in ROWS)

fan_out: Initializer = initializers.variance_scaling(2.0, "fan_out", "normal")
narrow: Initializer = initializers.normal(0.01)
"""torchvision's choices for convolutions and for linear layers; biases start at 0."""


class VGG(nn.Module):
    """VGG-11: eight 3x3 convolutions and two linear layers, each with ReLU and without BatchNorm, and a linear layer to
    logits. 132,863,336 parameters for 3-channel images and 1000 classes, as torchvision's.

    Published for 224x224 images; the five max-pools leave a pixel from 32x32, and the adaptive average pool takes any
    size from there.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels and hidden features (4096).
      dropout: rate after each of the two linear layers.
      unit: the factory of the units `conv_1` to `conv_8`, `hidden_1` and `hidden_2` (see `fdgjax.models.units`); the
        last layer, `head`, is a linear one.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    dropout: float = 0.5
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`; dropout (rng `dropout`) only when `train`.

        Raises:
          UserError: images too small for the max-pools.
        """
        zeros = initializers.zeros
        conv = partial(Conv, kernel_size=(3, 3), padding=1, kernel_init=fan_out, bias_init=zeros)
        dense = partial(Dense, kernel_init=narrow, bias_init=zeros)

        def convolution(x: jax.Array, number: int) -> jax.Array:
            if number == 1:
                check_image_size("VGG", "five max-pools", x, SMALLEST)
            row = ROWS[number - 1]
            activation = pooled_relu if row.pool else nn.relu
            x = self.unit(conv, widen(row.features, self.width), activation=activation, name=f"conv_{number}")(
                x, train=train
            )
            return flattened(adaptive_avg_pool(x, BINS)) if number == len(ROWS) else Passage("map")(x)

        def linear(x: jax.Array, number: int) -> jax.Array:
            x = self.unit(dense, widen(4096, self.width), name=f"hidden_{number}")(x, train=train)
            return nn.Dropout(self.dropout, deterministic=not train, name=f"dropout_{number}")(x)

        head = last_step(self, dense(self.classes, name="head"))
        convolutions = [partial(convolution, number=i) for i in range(1, len(ROWS) + 1)]
        return through([*convolutions, *(partial(linear, number=i) for i in (1, 2)), head], self.part, x)


def pooled_relu(x: jax.Array) -> jax.Array:
    """ReLU and a 2x2 max-pool, in the cheaper order; they commute."""
    return nn.relu(max_pool(x, 2))
