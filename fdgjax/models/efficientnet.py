"""EfficientNet-Lite0 (Tan and Le, "EfficientNet", 2019, Table 1, in the form made for CPUs and phones): inverted
residual blocks with ReLU6, without squeeze-and-excite."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import flax.linen as nn
import jax

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, last_step, through
from fdgjax.models.units import NormUnit, Unit, no_activation, widen
from fdgjax.nn import BatchNorm, Conv, Dense

lite_unit = partial(NormUnit, batch_norm=partial(BatchNorm, momentum=0.99, epsilon=1e-3))
"""A unit with the BatchNorm of the published weights."""


class BlockStage(NamedTuple):
    """Blocks of one kind: how many, their channels, the side of the depthwise kernel, the first one's stride, and the
    factor by which a block expands its input's channels."""

    blocks: int
    features: int
    window: int
    stride: int
    expansion: int = 6


LITE0 = (
    BlockStage(1, 16, 3, 1, expansion=1),
    BlockStage(2, 24, 3, 2),
    BlockStage(2, 40, 5, 2),
    BlockStage(3, 80, 3, 2),
    BlockStage(3, 112, 5, 1),
    BlockStage(4, 192, 5, 2),
    BlockStage(1, 320, 3, 1),
)


STAGES = ("stem", *(f"stage_{i}" for i in range(1, len(LITE0) + 1)), "top")
"""The stem, the stages of Table 1, and the last convolution with the mean over all pixels."""


class InvertedResidual(nn.Module):
    """project(depthwise(expand(x))), plus x where the shape is the same (Sandler et al., "MobileNetV2", 2018).

    Variables: units `expand` (none where `expansion` is 1), `depthwise` and `project`.

    Attributes:
      features: output channels.
      window, stride: of the depthwise convolution.
      expansion: channels of the depthwise convolution, as a multiple of the input's.
      conv: makes a convolution.
      unit: the factory of `project`, without an activation.
    """

    features: int
    window: int
    stride: int
    expansion: int
    conv: Callable[..., nn.Module]
    unit: Unit

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, ceil(H / stride), ceil(W / stride), features]`."""
        y, channels, pointwise = x, x.shape[-1] * self.expansion, partial(self.conv, kernel_size=(1, 1))
        if self.expansion != 1:
            y = lite_unit(pointwise, channels, activation=nn.relu6, name="expand")(y, train=train)
        depthwise = partial(
            self.conv,
            kernel_size=(self.window, self.window),
            strides=self.stride,
            feature_group_count=channels,
        )
        y = lite_unit(depthwise, channels, activation=nn.relu6, name="depthwise")(y, train=train)
        y = self.unit(pointwise, self.features, activation=no_activation, name="project")(y, train=train)
        return x + y if x.shape == y.shape else y


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0: 4,652,008 parameters for 3-channel images and 1000 classes. Works for images of any size.

    Padding is TensorFlow's "SAME". The published weights expect images scaled to `(byte - 127) / 128`
    (`data.scaling=efficientnet_lite`).

    Attributes:
      classes: number of logits.
      width: factor on the number of channels.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`.
      unit: the factory of each block's last unit (see `fdgjax.models.units`): `DSEUnit` gives FDSE's variant.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    init_name: str = "torch"
    unit: Unit = lite_unit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`."""
        conv = partial(Conv, use_bias=False, padding="SAME", init_name=self.init_name)

        def stem(x: jax.Array) -> jax.Array:
            layer = partial(conv, kernel_size=(3, 3), strides=2)
            return lite_unit(layer, widen(32, self.width), activation=nn.relu6, name="stem")(x, train=train)

        def blocks(x: jax.Array, first: int, stage: BlockStage) -> jax.Array:
            for i in range(stage.blocks):
                stride, features = 1 if i else stage.stride, widen(stage.features, self.width)
                x = InvertedResidual(
                    features, stage.window, stride, stage.expansion, conv, self.unit, name=f"block_{first + i}"
                )(x, train=train)
            return Passage("map")(x)

        def top(x: jax.Array) -> jax.Array:
            layer = partial(conv, kernel_size=(1, 1))
            x = lite_unit(layer, widen(1280, self.width), activation=nn.relu6, name="top")(x, train=train)
            return Passage("last_map")(x).mean((1, 2))

        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        firsts = accumulate((stage.blocks for stage in LITE0[:-1]), initial=1)
        stages = [partial(blocks, first=first, stage=stage) for first, stage in zip(firsts, LITE0, strict=True)]
        return through([stem, *stages, top, head], self.part, x)
