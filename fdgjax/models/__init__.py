"""Networks by name. Each is called as `module.apply(variables, images, train=..., rngs={"dropout": key})`.

Images are float, `[batch, H, W, channels]` in [-1, 1]; the result is logits `[batch, classes]`.
"""

from collections.abc import Callable, Mapping

import flax.linen as nn

from fdgjax.models.autoencoder import Autoencoder
from fdgjax.models.digits import DigitsCNN
from fdgjax.models.inception import InceptionCNN

MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "inception": InceptionCNN,
    "digits_cnn": DigitsCNN,
}

__all__ = ["MODELS", "Autoencoder", "DigitsCNN", "InceptionCNN"]
