"""AlexNet with BatchNorm, FDSE's backbone (Table A5), or with DSE blocks (Table A6)."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, check_image_size, flattened, last_step, through
from fdgjax.models.units import NormUnit, Unit, widen
from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool


class AlexNetConv(NamedTuple):
    """A row of Table A5: a square convolution, and whether a 3x3 max-pool with stride 2 follows its ReLU."""

    features: int
    window: int
    stride: int
    padding: int
    pool: bool


ROWS = (
    AlexNetConv(64, 11, 4, 2, True),
    AlexNetConv(192, 5, 1, 2, True),
    AlexNetConv(384, 3, 1, 1, False),
    AlexNetConv(256, 3, 1, 1, False),
    AlexNetConv(256, 3, 1, 1, True),
)
UNPADDED_ROWS = tuple(row._replace(padding=0) if row.window == 3 else row for row in ROWS)
"""Of FDSE's official code since January 2026 (commit c0bd90b), for FDSE's own network alone: no padding in the last
three convolutions."""


STAGES = (*(f"conv_{i}" for i in range(1, len(ROWS) + 1)), "linear_1", "linear_2")


class AlexNet(nn.Module):
    """Table A5: five convolutions and two linear layers, each with BatchNorm and ReLU, and a linear layer to logits.

    12,974,154 parameters for 3-channel images and 10 classes (Table 4: 1.30e7); with `unit=DSEUnit` (Table A6)
    6,504,810 (Table 4: 0.65e7). Published for 224x224 images; the three max-pools leave a pixel from 63x63 (with
    `UNPADDED_ROWS` from 159x159), and the adaptive average pool takes any size from there.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels and hidden features, for smaller networks of the same shape.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of the units `conv_1` to `conv_5`, `linear_1` and `linear_2` (see `fdgjax.models.units`); the
        last layer, `head`, is a linear one.
      rows: the convolutions.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = NormUnit
    rows: Sequence[AlexNetConv] = ROWS
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`.

        Raises:
          UserError: images too small for the max-pools.
        """
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)

        def convolution(x: jax.Array, number: int) -> jax.Array:
            if number == 1:
                check_image_size("AlexNet", "three max-pools", x, smallest_side(self.rows))
            row = self.rows[number - 1]
            layer = partial(conv, kernel_size=(row.window,) * 2, strides=row.stride, padding=row.padding)
            activation = pooled_relu if row.pool else nn.relu
            x = self.unit(layer, widen(row.features, self.width), activation=activation, name=f"conv_{number}")(
                x, train=train
            )
            return flattened(adaptive_avg_pool(x, 6)) if number == len(self.rows) else Passage("map")(x)

        def linear(x: jax.Array, number: int) -> jax.Array:
            return self.unit(dense, widen(1024, self.width), name=f"linear_{number}")(x, train=train)

        head = last_step(self, dense(self.classes, name="head"))
        convolutions = [partial(convolution, number=i) for i in range(1, len(self.rows) + 1)]
        return through([*convolutions, *(partial(linear, number=i) for i in (1, 2)), head], self.part, x)


def pooled_relu(x: jax.Array) -> jax.Array:
    """ReLU and a 3x3 max-pool with stride 2, in the cheaper order; they commute. As the activation of a DSE unit it
    also runs before the channels are concatenated."""
    return nn.relu(max_pool(x, 3, 2))


def smallest_side(rows: Sequence[AlexNetConv]) -> int:
    """The side of the smallest images of which a pixel is left."""
    return next(side for side in count(1) if pixels_left(side, rows) > 0)


def pixels_left(side: int, rows: Sequence[AlexNetConv]) -> int:
    """The side of what the convolutions and max-pools make of images of that side; below 1, nothing is left."""
    for row in rows:
        side = (side + 2 * row.padding - row.window) // row.stride + 1
        side = (side - 3) // 2 + 1 if row.pool else side
    return side
