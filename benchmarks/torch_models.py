"""The networks in PyTorch. Images come as `[batch, channels, H, W]` stored channels last."""

import torch
from torch import nn
from torch.nn import functional as F


class InceptionModule(nn.Module):
    """1x1, 3x3 and 5x5 convolutions and a 3x3 max-pool of the same input, side by side, then ReLU."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        sizes = {1: 32, 3: 64, 5: 16}
        self.branches = nn.ModuleList(nn.Conv2d(inputs, out, k, padding=k // 2) for k, out in sizes.items())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, in, H, W]` -> `[batch, in + 112, H, W]`."""
        return F.relu(torch.cat([*(branch(x) for branch in self.branches), F.max_pool2d(x, 3, 1, 1)], dim=1))


class InceptionCNN(nn.Module):
    """hFedF's client network, as `fdgjax.models.InceptionCNN`."""

    def __init__(self, classes: int, image_size: int) -> None:
        del image_size  # the adaptive pool takes any
        super().__init__()
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
        # Rows of channels, as they lie in memory and as Flax flattens them.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.linear_2(self.linear_1(F.dropout(x, 0.2, self.training)))
