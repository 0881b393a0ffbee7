"""More networks in PyTorch, like those of `benchmarks.torch_models`."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.torch_models import NormUnit, rows_of_channels


class MnistUnit(nn.Module):
    """GroupNorm(ReLU(convolution)), as `fdgjax.models.mnist.GroupNormUnit`."""

    def __init__(self, inputs: int, features: int, stride: int) -> None:
        super().__init__()
        self.layer, self.gn = nn.Conv2d(inputs, features, 3, stride, 1), nn.GroupNorm(8, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, features, H', W']`."""
        return self.gn(F.relu(self.layer(x)))


class MnistCNN(nn.Module):
    """DomainBed's network, as `fdgjax.models.mnist.MnistCNN`."""

    def __init__(self, classes: int, image_size: int, width: float = 1.0) -> None:
        del image_size  # the average over all pixels takes any
        super().__init__()
        first, rest = round(64 * width), round(128 * width)
        self.conv_1, self.conv_2 = MnistUnit(3, first, 1), MnistUnit(first, rest, 2)
        self.conv_3, self.conv_4 = MnistUnit(rest, rest, 1), MnistUnit(rest, rest, 1)
        self.head = nn.Linear(rest, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        return self.head(self.conv_4(self.conv_3(self.conv_2(self.conv_1(x)))).mean((2, 3)))


class DirtCNN(nn.Module):
    """DIRT's network, as `fdgjax.models.mnist.DirtCNN`."""

    def __init__(self, classes: int, image_size: int, width: float = 1.0) -> None:
        del image_size  # the adaptive pool takes any
        super().__init__()
        first, second, features = (round(width * channels) for channels in (32, 64, 64))
        self.conv_1 = NormUnit(lambda out: nn.Conv2d(3, out, 5, bias=False), first)
        self.conv_2 = NormUnit(lambda out: nn.Conv2d(first, out, 5, bias=False), second)
        self.linear_1, self.head = nn.Linear(16 * second, features), nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.max_pool2d(self.conv_2(F.max_pool2d(self.conv_1(x), 2)), 2)
        return self.head(self.linear_1(rows_of_channels(F.adaptive_avg_pool2d(x, 4))))


class DenseLayer(nn.Module):
    """As `fdgjax.models.densenet.DenseLayer`."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(inputs)
        self.unit_1 = NormUnit(lambda out: nn.Conv2d(inputs, out, 1, bias=False), 4 * growth)
        self.unit_2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, in + growth, H, W]`."""
        return torch.cat([x, self.unit_2(self.unit_1(F.relu(self.bn(x))))], dim=1)


class Transition(nn.Module):
    """As `fdgjax.models.densenet.Transition`."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, in // 2, H // 2, W // 2]`."""
        return F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)


class DenseNet(nn.Module):
    """DenseNet-121, as `fdgjax.models.densenet.DenseNet`."""

    def __init__(
        self, classes: int, image_size: int, growth: int = 32, depths: Sequence[int] = (6, 12, 24, 16)
    ) -> None:
        del image_size  # the average over all pixels takes any
        super().__init__()
        inputs, names = 2 * growth, []
        self.stem = NormUnit(lambda out: nn.Conv2d(3, out, 7, 2, 3, bias=False), inputs)
        for stage, depth in enumerate(depths, start=1):
            for block in range(1, depth + 1):
                names.append(f"stage_{stage}_block_{block}")
                self.add_module(names[-1], DenseLayer(inputs, growth))
                inputs += growth
            if stage < len(depths):
                names.append(f"transition_{stage}")
                self.add_module(names[-1], Transition(inputs))
                inputs //= 2
        self.names, self.bn, self.head = names, nn.BatchNorm2d(inputs), nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for name in self.names:
            x = self.get_submodule(name)(x)
        return self.head(F.relu(self.bn(x)).mean((2, 3)))


class SameConv2d(nn.Conv2d):
    """A convolution padded to ceil(pixels / stride) outputs, the odd pixel at the end: TensorFlow's "SAME"."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, features, ceil(H / stride), ceil(W / stride)]`."""
        if self.stride[0] == 1:
            return F.conv2d(x, self.weight, padding=self.kernel_size[0] // 2, groups=self.groups)
        sides = []
        for pixels in (x.shape[3], x.shape[2]):
            missing = max((-(-pixels // self.stride[0]) - 1) * self.stride[0] + self.kernel_size[0] - pixels, 0)
            sides += [missing // 2, missing - missing // 2]
        return F.conv2d(F.pad(x, sides), self.weight, stride=self.stride, groups=self.groups)


class LiteUnit(nn.Module):
    """As `fdgjax.models.efficientnet.lite_unit`."""

    def __init__(self, inputs: int, features: int, window: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.layer = SameConv2d(inputs, features, window, stride, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(features, eps=1e-3, momentum=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, features, H', W']`, without the activation."""
        return self.bn(self.layer(x))


class InvertedResidual(nn.Module):
    """As `fdgjax.models.efficientnet.InvertedResidual`."""

    def __init__(self, inputs: int, features: int, window: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner, self.residual = inputs * expansion, stride == 1 and inputs == features
        self.expand = LiteUnit(inputs, inner) if expansion != 1 else None
        self.depthwise = LiteUnit(inner, inner, window, stride, groups=inner)
        self.project = LiteUnit(inner, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, features, H', W']`."""
        y = F.relu6(self.expand(x)) if self.expand else x
        y = self.project(F.relu6(self.depthwise(y)))
        return x + y if self.residual else y


LITE0 = (
    (1, 16, 3, 1, 1),
    (2, 24, 3, 2, 6),
    (2, 40, 5, 2, 6),
    (3, 80, 3, 2, 6),
    (3, 112, 5, 1, 6),
    (4, 192, 5, 2, 6),
    (1, 320, 3, 1, 6),
)
"""Of each stage: blocks, channels, the depthwise kernel's side, the first stride, expansion."""


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0, as `fdgjax.models.efficientnet.EfficientNetLite`."""

    def __init__(self, classes: int, image_size: int, width: float = 1.0) -> None:
        del image_size  # the average over all pixels takes any
        super().__init__()
        inputs, blocks = round(32 * width), []
        self.stem = LiteUnit(3, inputs, 3, 2)
        for count, channels, window, stride, expansion in LITE0:
            features = round(channels * width)
            for block in range(count):
                blocks.append(InvertedResidual(inputs, features, window, 1 if block else stride, expansion))
                inputs = features
        self.blocks = [f"block_{number}" for number in range(1, len(blocks) + 1)]
        for name, block in zip(self.blocks, blocks, strict=True):
            self.add_module(name, block)
        self.top, self.head = LiteUnit(inputs, round(1280 * width)), nn.Linear(round(1280 * width), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.relu6(self.stem(x))
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        return self.head(F.relu6(self.top(x)).mean((2, 3)))
