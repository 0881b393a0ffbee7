"""The networks in PyTorch, with the originals' names for all variables. Images come as `[batch, channels, H, W]` stored
channels last."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Layer = Callable[[int], nn.Module]
Activation = Callable[[torch.Tensor], torch.Tensor]
Unit = Callable[[Layer, int], nn.Module]


def rows_of_channels(x: torch.Tensor) -> torch.Tensor:
    """`[batch, channels, H, W]` -> `[batch, H * W * channels]`, as images lie in memory and as Flax flattens them."""
    return x.permute(0, 2, 3, 1).flatten(1)


class InceptionModule(nn.Module):
    """1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool of the same input, side by side, then ReLU."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.conv_1x1 = nn.Conv2d(inputs, 32, 1)
        self.conv_3x3 = nn.Conv2d(inputs, 64, 3, padding=1)
        self.conv_5x5 = nn.Conv2d(inputs, 16, 5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, in + 112, H, W]`."""
        pooled = F.max_pool2d(x, 3, 1, 1)
        return F.relu(torch.cat([self.conv_1x1(x), self.conv_3x3(x), self.conv_5x5(x), pooled], dim=1))


class InceptionCNN(nn.Module):
    """hFedF's client network, as `fdgjax.models.InceptionCNN`."""

    def __init__(self, classes: int, image_size: int, dropout: float = 0.2) -> None:
        del image_size  # the adaptive pool takes any
        super().__init__()
        self.dropout = dropout
        self.conv_1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv_2 = nn.Conv2d(32, 32, 1)
        self.conv_3 = nn.Conv2d(32, 64, 3, padding=1)
        self.inception_1, self.inception_2 = InceptionModule(64), InceptionModule(176)
        self.linear_1, self.linear_2 = nn.Linear(288 * 9, 256), nn.Linear(256, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.relu(F.max_pool2d(self.conv_1(x), 2))
        x = F.relu(F.max_pool2d(self.conv_3(self.conv_2(x)), 2))
        x = F.adaptive_avg_pool2d(self.inception_2(self.inception_1(x)), 3)
        x = F.dropout(rows_of_channels(x), self.dropout, self.training)
        return self.linear_2(self.linear_1(x))


class DigitsCNN(nn.Module):
    """As `fdgjax.models.DigitsCNN`."""

    def __init__(self, classes: int, image_size: int) -> None:
        del image_size  # the adaptive pool takes any
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.linear_1, self.linear_2 = nn.Linear(32 * 16, 64), nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.relu(self.conv_2(F.relu(self.conv_1(x))))
        x = rows_of_channels(F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 4))
        return self.linear_2(F.relu(self.linear_1(x)))


def batch_norm(features: int, images: bool) -> nn.Module:
    """BatchNorm of images or of vectors, PyTorch's defaults."""
    return nn.BatchNorm2d(features) if images else nn.BatchNorm1d(features)


class NormUnit(nn.Module):
    """As `fdgjax.models.NormUnit`; `layer(features)` makes the convolution or linear layer."""

    def __init__(self, layer: Layer, features: int, activation: Activation = F.relu) -> None:
        super().__init__()
        self.layer, self.activation = layer(features), activation
        self.bn = batch_norm(features, isinstance(self.layer, nn.Conv2d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, ...]` -> `[batch, features, ...]`."""
        return self.activation(self.bn(self.layer(x)))


class DSEUnit(nn.Module):
    """As `fdgjax.models.DSEUnit`, for an even number of features."""

    def __init__(self, layer: Layer, features: int, activation: Activation = F.relu) -> None:
        super().__init__()
        core = features // 2
        self.dfe, self.activation = layer(core), activation
        self.images = isinstance(self.dfe, nn.Conv2d)
        side = 3 if self.images else 1
        self.dse = nn.Conv2d(core, core, side, padding=side // 2, groups=core, bias=False)
        self.bn_dse, self.bn_dfe = batch_norm(core, self.images), batch_norm(features, self.images)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, ...]` -> `[batch, features, ...]`."""
        core = F.relu(self.bn_dse(self.dfe(x)))
        erased = self.dse(core) if self.images else self.dse(core[:, :, None, None]).flatten(1)
        return self.activation(self.bn_dfe(torch.cat([core, erased], dim=1)))


class AlexNet(nn.Module):
    """FDSE's backbone (Table A5), as `fdgjax.models.AlexNet`."""

    def __init__(self, classes: int, image_size: int, width: float = 1.0, unit: Unit = NormUnit) -> None:
        del image_size  # the adaptive pool takes any
        super().__init__()
        first, second, third, fourth, hidden = (round(width * channels) for channels in (64, 192, 384, 256, 1024))
        self.conv_1 = unit(lambda out: nn.Conv2d(3, out, 11, 4, 2), first)
        self.conv_2 = unit(lambda out: nn.Conv2d(first, out, 5, 1, 2), second)
        self.conv_3 = unit(lambda out: nn.Conv2d(second, out, 3, 1, 1), third)
        self.conv_4 = unit(lambda out: nn.Conv2d(third, out, 3, 1, 1), fourth)
        self.conv_5 = unit(lambda out: nn.Conv2d(fourth, out, 3, 1, 1), fourth)
        self.linear_1 = unit(lambda out: nn.Linear(fourth * 36, out), hidden)
        self.linear_2 = unit(lambda out: nn.Linear(hidden, out), hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = F.max_pool2d(self.conv_1(x), 3, 2)
        x = F.max_pool2d(self.conv_2(x), 3, 2)
        x = F.max_pool2d(self.conv_5(self.conv_4(self.conv_3(x))), 3, 2)
        x = rows_of_channels(F.adaptive_avg_pool2d(x, 6))
        return self.head(self.linear_2(self.linear_1(x)))


class DSEAlexNet(AlexNet):
    """FDSE's network (Table A6), as `fdgjax.models.AlexNet` with `DSEUnit`."""

    def __init__(self, classes: int, image_size: int, width: float = 1.0) -> None:
        super().__init__(classes, image_size, width, DSEUnit)


class Block(nn.Module):
    """A basic block, as `fdgjax.models.resnet.Block`."""

    def __init__(self, inputs: int, features: int, stride: int) -> None:
        super().__init__()
        self.unit_1 = NormUnit(lambda out: nn.Conv2d(inputs, out, 3, stride, 1, bias=False), features)
        self.unit_2 = NormUnit(lambda out: nn.Conv2d(features, out, 3, 1, 1, bias=False), features, nn.Identity())
        self.shortcut: nn.Module = nn.Identity()
        if inputs != features:
            self.shortcut = NormUnit(lambda out: nn.Conv2d(inputs, out, 1, stride, bias=False), features, nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, features, H', W']`."""
        return F.relu(self.unit_2(self.unit_1(x)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with the stem for small images, as `fdgjax.models.ResNet`; PyTorch's default initialisation."""

    def __init__(self, classes: int, image_size: int, width: int = 64) -> None:
        del image_size  # the average over all pixels takes any
        super().__init__()
        self.stem = NormUnit(lambda out: nn.Conv2d(3, out, 3, 1, 1, bias=False), width)
        self.blocks, inputs = [], width
        for stage in range(4):
            for i in range(2):
                name, features = f"stage_{stage + 1}_block_{i + 1}", width * 2**stage
                self.add_module(name, Block(inputs, features, 2 if stage and not i else 1))
                self.blocks.append(name)
                inputs = features
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, 3, H, W]` -> `[batch, classes]`."""
        x = self.stem(x)
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        return self.head(x.mean((2, 3)))
