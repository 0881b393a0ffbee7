"""A small network for handwritten digits (8x8 or 28x28), cheap enough for examples and tests on a laptop."""

from functools import partial

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, flattened, last_step, through
from fdgjax.models.units import Unit, plain_unit, widen
from fdgjax.nn import Conv, Dense, adaptive_avg_pool, max_pool

STAGES = ("conv_1", "conv_2", "linear_1")
"""`conv_2` includes the pools after it, `linear_1` the dropout before it."""


class DigitsCNN(nn.Module):
    """Two 3x3 convolutions, a max-pool, 4x4 adaptive average bins and two linear layers; 38,282 parameters
    for 10 classes.

    Not from a paper. No BatchNorm, so that clients differ in their parameters only.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels and hidden features.
      dropout: rate before the first linear layer.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of all units but the last layer (see `fdgjax.models.units`).
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    dropout: float = 0.0
    init_name: str = "torch"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`; dropout (rng `dropout`) only
        when `train`."""
        conv, dense = partial(Conv, init_name=self.init_name), partial(Dense, init_name=self.init_name)

        def convolution(x: jax.Array, number: int) -> jax.Array:
            layer = partial(conv, kernel_size=(3, 3))
            return self.unit(layer, widen(16 * number, self.width), name=f"conv_{number}")(x, train=train)

        def linear(x: jax.Array) -> jax.Array:
            x = nn.Dropout(self.dropout, deterministic=not train, name="dropout")(x)
            return self.unit(dense, widen(64, self.width), name="linear_1")(x, train=train)

        head = last_step(self, dense(self.classes, name="linear_2"))
        steps = (
            lambda x: Passage("map")(convolution(x, 1)),
            lambda x: flattened(adaptive_avg_pool(max_pool(convolution(x, 2), 2), 4)),
            linear,
            head,
        )
        return through(steps, self.part, x)
