"""Networks for MNIST's domains: DomainBed's (Gulrajani & Lopez-Paz, "In search of lost domain generalization", 2021)
and DIRT's (Nguyen et al., "Domain invariant representation learning with domain density transformations", 2021)."""

import math
from functools import partial

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, check_image_size, flattened, last_step, through
from fdgjax.models.units import Activation, Layer, NormUnit, Unit, widen
from fdgjax.nn import Conv, Dense, GroupNorm, adaptive_avg_pool, max_pool

GROUPS = 8
CONVOLUTIONS = ((64, 1), (128, 2), (128, 1), (128, 1))
"""Channels and stride of each convolution."""
STAGES = ("conv_1", "conv_2", "conv_3", "conv_4")
"""`conv_4` includes the mean over all pixels."""


class GroupNormUnit(nn.Module):
    """GN(activation(layer(x))), DomainBed's order.

    GroupNorm keeps no running statistics: training and evaluation are the same. There are 8 groups of channels,
    or the greatest common divisor of 8 and the number of channels: 4 groups for 12 channels, 1 for 5.

    Variables: `layer` and `gn`.

    Attributes:
      layer: makes the layer from `features` and `name`.
      features: output channels.
      activation: applied before GroupNorm.
    """

    layer: Layer
    features: int
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ..., in]` -> `[batch, ..., features]`."""
        del train
        y = self.activation(self.layer(features=self.features, name="layer")(x))
        # PyTorch's epsilon; Flax's is a tenth of it.
        normalised: jax.Array = GroupNorm(math.gcd(GROUPS, self.features), 1e-5, name="gn")(y)
        return normalised


class MnistCNN(nn.Module):
    """Four 3x3 convolutions, the second with stride 2, each with ReLU and GroupNorm; the mean over all pixels, which
    gives m = 128 features; a linear layer. 371,850 parameters for grey images and 10 classes. Works for images of any
    size.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels (64, 128, 128, 128).
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of the units `conv_1` to `conv_4` (see `fdgjax.models.units`), which replaces GroupNorm too.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = GroupNormUnit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`."""
        conv = partial(Conv, kernel_size=(3, 3), padding=1, init_name=self.init_name)

        def convolution(x: jax.Array, number: int) -> jax.Array:
            features, stride = CONVOLUTIONS[number - 1]
            layer = partial(conv, strides=stride)
            x = self.unit(layer, widen(features, self.width), name=f"conv_{number}")(x, train=train)
            return Passage("last_map")(x).mean((1, 2)) if number == len(CONVOLUTIONS) else Passage("map")(x)

        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        convolutions = [partial(convolution, number=i) for i in range(1, len(CONVOLUTIONS) + 1)]
        return through([*convolutions, head], self.part, x)


DIRT_STAGES = ("conv_1", "conv_2", "linear_1")


class DirtCNN(nn.Module):
    """Two 5x5 convolutions of 32 and 64 channels without padding, each with BatchNorm, ReLU and a 2x2 max-pool; 4x4
    adaptive average bins, which are single pixels if the images have 28; a linear layer to m = 64 features; a linear
    layer. 118,442 parameters for grey images and 10 classes. From 16x16 pixels.

    The network of DIRT's official code for rotated MNIST, the variant of the data set that FedSR and UAP use, too.
    DIRT's code has a ReLU between the two linear layers, and Xavier's initial weights; here the classifier is linear in
    the features, as FedSR's is.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels (32, 64) and features (64).
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of the units `conv_1` and `conv_2` (see `fdgjax.models.units`).
      part: the steps that are run, of `DIRT_STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = NormUnit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`."""
        conv = partial(Conv, kernel_size=(5, 5), padding="VALID", use_bias=False, init_name=self.init_name)
        dense = partial(Dense, init_name=self.init_name)

        def convolution(x: jax.Array, number: int) -> jax.Array:
            if number == 1:
                check_image_size("DIRT's network", "two max-pools", x, 16, published=28)
            x = self.unit(conv, widen(32 * number, self.width), name=f"conv_{number}")(x, train=train)
            x = max_pool(x, 2)
            return flattened(adaptive_avg_pool(x, 4)) if number == 2 else Passage("map")(x)

        steps = (
            partial(convolution, number=1),
            partial(convolution, number=2),
            dense(widen(64, self.width), name="linear_1"),
            last_step(self, dense(self.classes, name="head")),
        )
        return through(steps, self.part, x)
