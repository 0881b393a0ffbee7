"""A network for series, such as signals of several channels: convolutions along time."""

from functools import partial

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, StageRange, last_step, through
from fdgjax.models.units import NormUnit, Unit, along_time, widen
from fdgjax.nn import Conv, Dense
from fdgjax.utils.errors import UserError

CHANNELS = (32, 64, 64)
"""Output channels of each convolution at width 1."""
KERNEL, STRIDE = 5, 2
STAGES = ("conv_1", "conv_2", "conv_3")
"""`conv_3` includes the mean over time."""


class Conv1D(nn.Module):
    """Three convolutions along time with 5 taps, stride 2 and BatchNorm, each followed by ReLU; the mean over time,
    which gives m = 64 features; a linear layer. 31,810 parameters for 3 channels and two classes. Works for series of
    any length; a feature of the last convolution sees 29 points in time.

    Not from a paper; convolutions with BatchNorm and the mean over time are as in the fully convolutional network of
    Wang, Yan and Oates, "Time series classification from scratch with deep neural networks", 2017.

    A series is convolved as an image of width 1, so that the convolution is `fdgjax.nn.conv2d`, which stays fast with a
    client axis; kernels are `[5, 1, in, out]`.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of the units `conv_1` to `conv_3` (see `fdgjax.models.units`); FDSE's skew erasers have a window
        along time alone.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = NormUnit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, time, channels]` -> logits `[batch, classes]`.

        Raises:
          UserError: inputs that are not series.
        """
        layer = partial(
            Conv, kernel_size=(KERNEL, 1), strides=(STRIDE, 1), padding=(KERNEL // 2, 0), init_name=self.init_name
        )

        def convolution(x: jax.Array, number: int) -> jax.Array:
            x = as_narrow_images(x) if number == 1 else x
            features = widen(CHANNELS[number - 1], self.width)
            x = along_time(self.unit)(layer, features, name=f"conv_{number}")(x, train=train)
            return x.mean((1, 2)) if number == len(CHANNELS) else x

        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        return through([*(partial(convolution, number=i) for i in (1, 2, 3)), head], self.part, x)


def as_narrow_images(x: jax.Array) -> jax.Array:
    """Series `[batch, time, channels]` as images of width 1, `[batch, time, 1, channels]`.

    Raises:
      UserError: other inputs than series.
    """
    if x.ndim != 3:
        raise UserError(
            f"the model 'conv1d' got samples of shape {list(x.shape[1:])}; expected series [time, channels]: take "
            "'mlp' or 'linear' for rows of a table, another model for images"
        )
    return x[:, :, None]
