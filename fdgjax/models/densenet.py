"""Densely connected networks (Huang et al., "Densely connected convolutional networks", 2017), DenseNet-121 as
torchvision's."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn import initializers

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, check_image_size, last_step, through
from fdgjax.models.units import NormUnit, Unit, no_activation, norm, plain_unit, widen
from fdgjax.nn import Conv, Dense, avg_pool, max_pool
from fdgjax.nn.layers import Initializer

GROWTH = 32
"""Channels that each layer adds, the paper's k; the stem has twice as many, a bottleneck four times."""
DEPTHS = (6, 12, 24, 16)
STAGES = ("stem", "stage_1", "stage_2", "stage_3", "stage_4")
"""A stage is a dense block with the transition after it; the last has BatchNorm, ReLU and the mean over all pixels."""

SMALLEST = 29
"""Smallest side of an image of which the stem's strides and the three transitions leave a pixel."""

fan_in: Initializer = initializers.variance_scaling(2.0, "fan_in", "normal")
"""Normal with variance 2 / fan_in, torchvision's choice for the convolutions of its DenseNets."""


class DenseLayer(nn.Module):
    """unit_2(unit_1(ReLU(BN(concat(parts))))): a 1x1 convolution to four times the growth, with BatchNorm and ReLU, and
    a 3x3 convolution to the growth, which are the next part.

    A block's parts are concatenated anew in each layer. Added to the array of the layer before they would form a chain,
    whose gradient is a chain of slices and sums, and XLA:CPU would compute the rest of the chain anew at every layer.

    Attributes:
      growth: channels that are added.
      conv: makes a convolution from `features` and `kernel_size`.
      unit: the factory of `unit_2`, the 3x3 convolution, without an activation.
    """

    growth: int
    conv: partial[Conv]
    unit: Unit

    @nn.compact
    def __call__(self, parts: Sequence[jax.Array], train: bool = False) -> jax.Array:
        """`[batch, H, W, channels of the part]` each -> `[batch, H, W, growth]`."""
        y = nn.relu(norm(jnp.concatenate(parts, axis=-1), train, "bn"))
        y = NormUnit(partial(self.conv, kernel_size=(1, 1)), 4 * self.growth, name="unit_1")(y, train=train)
        window = partial(self.conv, kernel_size=(3, 3), padding=1)
        return self.unit(window, self.growth, activation=no_activation, name="unit_2")(y, train=train)


class Transition(nn.Module):
    """Halves height and width of ReLU(BN(x)) by 2x2 average pooling, and the channels by a 1x1 convolution.

    The original pools what the convolution gives; both are linear and act on different axes, so that the order changes
    nothing but the rounding, and a quarter of the convolution's multiplications are left.

    Attributes:
      conv: makes a convolution from `features` and `kernel_size`.
    """

    conv: partial[Conv]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, H // 2, W // 2, in // 2]`."""
        y = nn.relu(norm(x, train, "bn"))
        return self.conv(x.shape[-1] // 2, kernel_size=(1, 1), name="conv")(avg_pool(y, 2))


class DenseNet(nn.Module):
    """DenseNet-121: 7,978,856 parameters for 3-channel images and 1000 classes, as torchvision's.

    Published for 224x224 images; works for any from 29x29.

    Attributes:
      classes: number of logits.
      width: factor on the growth, and thus on all channels.
      depths: layers in each dense block.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for the last layer; convolutions have torchvision's.
      unit: the factory of each layer's last unit (see `fdgjax.models.units`): `DSEUnit` gives FDSE's variant, which
        replaces the last operator of each layer, the 3x3 convolution.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    depths: Sequence[int] = DEPTHS
    init_name: str = "torch"
    unit: Unit = plain_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`.

        Raises:
          UserError: images too small for the pools.
        """
        conv = partial(Conv, use_bias=False, kernel_init=fan_in)
        growth, last = widen(GROWTH, self.width), len(self.depths)

        def stem(x: jax.Array) -> jax.Array:
            check_image_size("DenseNet", "pools", x, SMALLEST)
            layer = partial(conv, kernel_size=(7, 7), strides=2, padding=3)
            return max_pool(NormUnit(layer, 2 * growth, name="stem")(x, train=train), 3, 2, 1)

        def block(x: jax.Array, number: int) -> jax.Array:
            parts = [x]
            for i in range(1, self.depths[number - 1] + 1):
                parts.append(DenseLayer(growth, conv, self.unit, name=f"stage_{number}_block_{i}")(parts, train=train))
            x = jnp.concatenate(parts, axis=-1)
            if number < last:
                return Passage("map")(Transition(conv, name=f"transition_{number}")(x, train=train))
            return Passage("last_map")(nn.relu(norm(x, train, "bn"))).mean((1, 2))

        dense = Dense(self.classes, init_name=self.init_name, bias_init=initializers.zeros, name="head")
        blocks = [partial(block, number=i) for i in range(1, last + 1)]
        return through([stem, *blocks, last_step(self, dense)], self.part, x)
