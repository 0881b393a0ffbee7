"""Networks by name. Each is called as `module.apply(variables, images, train=..., rngs={"dropout": key})`.

Images are float, `[batch, H, W, channels]` in [-1, 1]; the result is logits `[batch, classes]`.
"""

from collections.abc import Callable, Mapping
from functools import partial

import flax.linen as nn

from fdgjax.models.alexnet import AlexNet
from fdgjax.models.autoencoder import Autoencoder
from fdgjax.models.digits import DigitsCNN
from fdgjax.models.inception import InceptionCNN
from fdgjax.models.resnet import ResNet
from fdgjax.models.units import DSEUnit, NormUnit

resnet50 = partial(ResNet, stem="imagenet", branch="bottleneck", depths=(3, 4, 6, 3))

MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "inception": InceptionCNN,
    "digits_cnn": DigitsCNN,
    "alexnet": AlexNet,
    "dse_alexnet": partial(AlexNet, unit=DSEUnit),
    "resnet18": ResNet,
    "resnet18_imagenet": partial(ResNet, stem="imagenet"),
    "resnet50_imagenet": resnet50,
    "dse_resnet50_imagenet": partial(resnet50, last_unit=DSEUnit),
}

__all__ = ["MODELS", "AlexNet", "Autoencoder", "DSEUnit", "DigitsCNN", "InceptionCNN", "NormUnit", "ResNet"]
