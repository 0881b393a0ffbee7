"""Makes torchvision_numbers.npz, beside this file: the logits of torchvision's and timm's own networks, narrow ones,
that are given the files of `tests.conformance.weights`, in float64.

Made with PyTorch 2.13.0, torchvision 0.29.2 and timm 1.0.31, by

    pip install -e '.[test]' torch torchvision timm
    python -m tests.conformance.make_torchvision_numbers

Every tensor of a network has to be in its file and the other way round. The numbers of torch_numbers.npz for ResNet-18
and ViT-B/8, from forwards that were written down from these libraries, are compared on the way.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import timm
import torch
from torch import nn
from torchvision.models import densenet, resnet, vgg

from tests.conformance import TORCHVISION, torch_numbers
from tests.conformance.weights import CLASSES, SIDES, images, weights_for

WRITTEN_DOWN = ("resnet18_imagenet", "vit_b8")
"""Networks whose numbers are in torch_numbers.npz."""


class NarrowResNet(resnet.ResNet):
    """torchvision's ResNet with a sixteenth of the channels, which its arguments do not allow."""

    inplanes: int

    def __init__(self, block: Any, depths: list[int]) -> None:
        super().__init__(block, depths, CLASSES)
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        self.fc = nn.Linear(32 * block.expansion, CLASSES)

    def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> nn.Module:
        self.inplanes = 4 if planes == 64 else self.inplanes
        return super()._make_layer(block, planes // 16, *args, **kwargs)


def narrow_vgg() -> nn.Module:
    """torchvision's VGG-11 with a thirty-second of the channels, which its arguments do not allow."""
    rows = [row if row == "M" else row // 32 for row in vgg.cfgs["A"]]
    network = vgg.VGG(vgg.make_layers(rows), CLASSES)
    for place, sizes in {0: (16 * 7 * 7, 128), 3: (128, 128), 6: (128, CLASSES)}.items():
        network.classifier[place] = nn.Linear(*sizes)
    return network


def transformer(side: int, patch: int) -> nn.Module:
    """timm's vision transformer with two heads of 64 features."""
    return timm.models.VisionTransformer(side, patch, num_classes=CLASSES, embed_dim=128, depth=12, num_heads=2)


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "resnet18_imagenet": partial(NarrowResNet, resnet.BasicBlock, [2, 2, 2, 2]),
    "resnet50_imagenet": partial(NarrowResNet, resnet.Bottleneck, [3, 4, 6, 3]),
    "vit_b8": partial(transformer, 16, 8),
    "vgg11": narrow_vgg,
    "densenet121": partial(densenet.DenseNet, 2, (6, 12, 24, 16), 4, num_classes=CLASSES),
    "deit_b": partial(transformer, SIDES["deit_b"], 16),
}


def logits(name: str) -> np.ndarray:
    """The logits of a network that is given its file."""
    network = NETWORKS[name]().double().eval()
    counters = {key: value for key, value in network.state_dict().items() if key.endswith("num_batches_tracked")}
    tensors = {key: torch.from_numpy(value).double() for key, value in weights_for(name).items()}
    network.load_state_dict(tensors | counters, strict=True)
    with torch.no_grad():
        return network(torch.from_numpy(images(name)).double().permute(0, 3, 1, 2)).numpy()


def main() -> None:
    found = {name: logits(name) for name in NETWORKS}
    for name in WRITTEN_DOWN:
        np.testing.assert_allclose(found.pop(name), torch_numbers(name)["logits"], rtol=1e-9)
    arrays: dict[str, Any] = {f"{name}/logits": value for name, value in found.items()}
    np.savez_compressed(TORCHVISION, **arrays)


if __name__ == "__main__":
    main()
