"""Residual networks (He et al., "Deep residual learning for image recognition", 2016), by torchvision's conventions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
from jax.nn import initializers

from fdgjax.models.stages import ALL_STAGES, Passage, StageRange, last_step, through
from fdgjax.models.units import NormUnit, Unit, no_activation, widen
from fdgjax.nn import Conv, Dense, max_pool
from fdgjax.nn.layers import Initializer
from fdgjax.utils.registry import lookup


class Stem(NamedTuple):
    """The first convolution, and whether a 3x3 max-pool with stride 2 follows."""

    window: int
    stride: int
    pool: bool


class Step(NamedTuple):
    """One unit of a residual branch: a square convolution, its channels as a multiple of the stage's, and whether it
    has the block's stride."""

    window: int
    expansion: int = 1
    strided: bool = False


STEMS: Mapping[str, Stem] = {
    "small": Stem(3, 1, False),
    "strided": Stem(3, 2, False),
    "imagenet": Stem(7, 2, True),
}
"""`small` is the one for 32x32 images (SimCLR, appendix B.9; FedGaLA); `strided` has a quarter of its cost."""

BRANCHES: Mapping[str, tuple[Step, ...]] = {
    "basic": (Step(3, strided=True), Step(3)),
    "bottleneck": (Step(1), Step(3, strided=True), Step(1, expansion=4)),
}

DEPTHS = (2, 2, 2, 2)
STAGES = ("stem", "stage_1", "stage_2", "stage_3", "stage_4")
"""Names for four stages of blocks; the last includes the mean over all pixels."""

torchvision_init: Initializer = initializers.variance_scaling(2.0, "fan_out", "normal")
"""Normal with variance 2 / fan_out, torchvision's choice for the convolutions of its ResNets."""


class Block(nn.Module):
    """ReLU(branch(x) + shortcut(x)); the shortcut is a 1x1 unit where shapes differ, else the identity.

    Attributes:
      branch: the units of the branch, all but the last with ReLU.
      features: the stage's channels, which the steps multiply.
      stride: of the block.
      conv: makes a convolution from `features`, `kernel_size`, `strides` and `padding`.
      unit: the factory of the branch's last unit; `unit_1`, `unit_2`, ... before it and `shortcut` are `NormUnit`s.
    """

    branch: Sequence[Step]
    features: int
    stride: int
    conv: Callable[..., nn.Module]
    unit: Unit

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, in]` -> `[batch, ceil(H / stride), ceil(W / stride), features * expansion]`."""
        y, last = x, len(self.branch)
        for i, step in enumerate(self.branch, start=1):
            layer = square(self.conv, step.window, self.stride if step.strided else 1)
            # Annotated, or the common type of a class and a callable would be `object`.
            unit: Unit = self.unit if i == last else NormUnit
            activation = no_activation if i == last else nn.relu
            features = self.features * step.expansion
            y = unit(layer, features, activation=activation, name=f"unit_{i}")(y, train=train)
        if y.shape != x.shape:
            layer = square(self.conv, 1, self.stride)
            x = NormUnit(layer, y.shape[-1], activation=no_activation, name="shortcut")(x, train=train)
        return nn.relu(y + x)


class ResNet(nn.Module):
    """ResNet-18 by default: 11,689,512 parameters for 3-channel images and 1000 classes with the ImageNet stem, as
    torchvision's. Works for images of any size.

    Padding is explicit and symmetric (1 for a 3x3 convolution, whatever its stride), as in PyTorch; Flax's "SAME" pads
    an even image on the right only. A bottleneck's stride is that of its 3x3 convolution.

    Attributes:
      classes: number of logits.
      width: factor on the number of channels (of the first stage: 64).
      stem: entry of `STEMS`.
      branch: entry of `BRANCHES`, what the blocks are made of.
      depths: blocks in each stage; each stage but the first halves height and width and doubles the channels.
      conv_init: initializer of the convolutions' kernels; None for that of `init_name`.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for parameters without `conv_init`.
      unit: the factory of each block's last unit (see `fdgjax.models.units`): `DSEUnit` gives FDSE's variant, which
        replaces the last operator of each block (appendix A8.1). All other units are `NormUnit`s.
      part: the steps that are run, of `STAGES` and the last layer.
    """

    classes: int
    width: float = 1.0
    stem: str = "small"
    branch: str = "basic"
    depths: Sequence[int] = DEPTHS
    conv_init: Initializer | None = torchvision_init
    init_name: str = "torch"
    unit: Unit = NormUnit
    part: StageRange = ALL_STAGES

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, H, W, channels]` in [-1, 1] -> logits `[batch, classes]`.

        Raises:
          UserError: no such stem or branch.
        """
        stem, branch = lookup("stem", self.stem, STEMS), lookup("branch", self.branch, BRANCHES)
        conv = partial(Conv, use_bias=False, kernel_init=self.conv_init, init_name=self.init_name)
        width = widen(64, self.width)

        def first(x: jax.Array) -> jax.Array:
            x = NormUnit(square(conv, stem.window, stem.stride), width, name="stem")(x, train=train)
            return max_pool(x, 3, 2, 1) if stem.pool else x

        def blocks(x: jax.Array, stage: int) -> jax.Array:
            for i in range(self.depths[stage]):
                stride = 2 if stage and not i else 1
                name = f"stage_{stage + 1}_block_{i + 1}"
                x = Block(branch, width * 2**stage, stride, conv, self.unit, name=name)(x, train=train)
            return Passage("last_map")(x).mean((1, 2)) if stage == len(self.depths) - 1 else Passage("map")(x)

        head = last_step(self, Dense(self.classes, init_name=self.init_name, name="head"))
        stages = [partial(blocks, stage=stage) for stage in range(len(self.depths))]
        return through([first, *stages, head], self.part, x)


def square(conv: Callable[..., nn.Module], window: int, stride: int) -> Callable[..., nn.Module]:
    """The factory of a convolution with a square window, padded on all sides alike."""
    return partial(conv, kernel_size=(window, window), strides=stride, padding=window // 2)
