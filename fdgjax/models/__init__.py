"""Networks by name, their units and heads. Each network is called as
`module.apply(variables, inputs, train=..., rngs={"dropout": key})`.

Inputs are float: images `[batch, H, W, channels]`, in [-1, 1] or with another scaling (`fdgjax.models.scaling`), rows
of a table `[batch, columns]` or series `[batch, time, channels]`; the result is logits `[batch, classes]`. The features
`[batch, m]`, the last layer's input, are sown: with `mutable=["intermediates"]` they are in the changed collections as
`intermediates/features`; otherwise they cost nothing.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn

from fdgjax.models import alexnet, densenet, digits, efficientnet, inception, mnist, resnet, series, tables, vgg, vit
from fdgjax.models.alexnet import AlexNet
from fdgjax.models.autoencoder import Autoencoder
from fdgjax.models.densenet import DenseNet
from fdgjax.models.digits import DigitsCNN
from fdgjax.models.efficientnet import EfficientNetLite
from fdgjax.models.heads import HEADS, GaussianHead
from fdgjax.models.inception import InceptionCNN
from fdgjax.models.mnist import DirtCNN, MnistCNN
from fdgjax.models.resnet import ResNet
from fdgjax.models.series import Conv1D
from fdgjax.models.stages import ALL_STAGES, StageRange
from fdgjax.models.tables import MLP, Linear
from fdgjax.models.units import UNITS, DSEUnit, NormUnit, Unit
from fdgjax.models.vgg import VGG
from fdgjax.models.vit import ViT
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import Registry


class Backbone(NamedTuple):
    """A network of the registry: its Flax module, one line on what it is, the names of its stages, and for a network of
    other inputs than images the shape of a sample of which its cost is counted.

    Every module has the attributes `classes`, `width` and `unit`. `unit` makes the units that a method may replace;
    the module decides which: all but the last layer of a chain, the last operator of a residual block (FDSE, appendix
    A8.1). A module with stages has the attribute `part`, too (`fdgjax.models.stages`).
    """

    module: Callable[..., nn.Module]
    summary: str
    stages: tuple[str, ...] = ()
    sample: tuple[int, ...] = ()

    def __call__(
        self, classes: int, width: float = 1.0, unit: Unit | None = None, part: StageRange = ALL_STAGES, **settings: Any
    ) -> nn.Module:
        """The network; `width` is a factor on its channels, `unit` an entry of `UNITS`, None for the network's own.
        settings: values of further attributes, such as `dropout`.

        Raises:
          UserError: an attribute that the network does not have.
        """
        own = inspect.signature(self.module).parameters
        if unknown := [name for name in settings if name not in own]:
            raise UserError(
                f"config.model.{unknown[0]} got {settings[unknown[0]]}, which the network ({self.summary}) does not "
                "have; expected none, or another config.model.name, such as mlp"
            )
        chosen: dict[str, Any] = settings if unit is None else {"unit": unit, **settings}
        chosen |= {} if part == ALL_STAGES else {"part": part}
        return self.module(classes=classes, width=width, **chosen)


resnet10 = partial(ResNet, stem="strided", depths=(1, 1, 1, 1))
resnet50 = partial(ResNet, stem="imagenet", branch="bottleneck", depths=(3, 4, 6, 3))

NETWORKS: dict[str, Backbone] = {
    "inception": Backbone(InceptionCNN, "hFedF's client network, 32x32, no BatchNorm", inception.STAGES),
    "digits_cnn": Backbone(DigitsCNN, "two convolutions and two linear layers, no BatchNorm", digits.STAGES),
    "mnist_cnn": Backbone(MnistCNN, "DomainBed's network for MNIST: four convolutions with GroupNorm", mnist.STAGES),
    "dirt_cnn": Backbone(
        DirtCNN, "DIRT's network for rotated MNIST: two 5x5 convolutions with BatchNorm, from 16x16", mnist.DIRT_STAGES
    ),
    "alexnet": Backbone(AlexNet, "AlexNet with BatchNorm, 224x224, from 63x63 (FDSE, Table A5)", alexnet.STAGES),
    "alexnet_unpadded": Backbone(
        partial(AlexNet, rows=alexnet.UNPADDED_ROWS),
        "AlexNet without padding in `conv_3` to `conv_5`, from 159x159 (FDSE's code of 2026)",
        alexnet.STAGES,
    ),
    "resnet10": Backbone(
        resnet10, "ResNet with one block a stage and a 3x3 stem with stride 2: 32x32 on a CPU", resnet.STAGES
    ),
    "resnet18": Backbone(ResNet, "ResNet-18 for small images: 3x3 stem, no max-pool", resnet.STAGES),
    "resnet18_imagenet": Backbone(partial(ResNet, stem="imagenet"), "ResNet-18 as torchvision's", resnet.STAGES),
    "resnet50_imagenet": Backbone(resnet50, "ResNet-50 as torchvision's", resnet.STAGES),
    "efficientnet_lite0": Backbone(
        EfficientNetLite, "EfficientNet-Lite0: for CPUs and phones, no squeeze-and-excite", efficientnet.STAGES
    ),
    "vit_b8": Backbone(ViT, "ViT-B/8 as timm's, with a class token, for one size of images", vit.STAGES),
    "vgg11": Backbone(VGG, "VGG-11 as torchvision's, no BatchNorm, from 32x32", vgg.STAGES),
    "densenet121": Backbone(DenseNet, "DenseNet-121 as torchvision's, from 29x29", densenet.STAGES),
    "deit_b": Backbone(partial(ViT, patch=16), "DeiT-B as timm's: ViT-B/16, for one size of images", vit.STAGES),
    "linear": Backbone(Linear, "softmax regression: a linear layer of the inputs", sample=(32,)),
    "mlp": Backbone(MLP, "two hidden layers of 64, no BatchNorm", tables.STAGES, sample=(32,)),
    "conv1d": Backbone(
        Conv1D, "three convolutions along time with BatchNorm, for series", series.STAGES, sample=(128, 3)
    ),
}

MODELS: Registry[Backbone] = Registry("model", NETWORKS)

__all__ = [
    "HEADS",
    "MLP",
    "MODELS",
    "UNITS",
    "VGG",
    "AlexNet",
    "Autoencoder",
    "Backbone",
    "Conv1D",
    "DSEUnit",
    "DenseNet",
    "DigitsCNN",
    "DirtCNN",
    "EfficientNetLite",
    "GaussianHead",
    "InceptionCNN",
    "Linear",
    "MnistCNN",
    "NormUnit",
    "ResNet",
    "Unit",
    "ViT",
]
