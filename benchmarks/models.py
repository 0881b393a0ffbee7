"""The networks that are measured, and their twins: the same network on XLA's own layers, and in PyTorch."""

from collections.abc import Mapping
from typing import NamedTuple

from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


class Measured(NamedTuple):
    """A network to measure.

    network, unit: entries of `fdgjax.models.MODELS` and `UNITS`; '' for that of the same name, and for its own units.
    naive, torch: where the same network stands on other layers, as `module:name`, called with `classes` (PyTorch: also
      `image_size`); None if there is none.
    image_size, batch_size: the defaults of its measurement.
    """

    network: str = ""
    unit: str = ""
    naive: str | None = None
    torch: str | None = None
    image_size: int = 32
    batch_size: int = 64


MODELS: Mapping[str, Measured] = {
    "inception": Measured(naive="benchmarks.naive:InceptionCNN", torch="benchmarks.torch_models:InceptionCNN"),
    "digits_cnn": Measured(torch="benchmarks.torch_models:DigitsCNN", image_size=8),
    "alexnet": Measured(torch="benchmarks.torch_models:AlexNet", image_size=224, batch_size=8),
    "dse_alexnet": Measured("alexnet", "dse", torch="benchmarks.torch_models:DSEAlexNet", image_size=224, batch_size=8),
    "resnet18": Measured(torch="benchmarks.torch_models:ResNet18", batch_size=16),
    "mnist_cnn": Measured(torch="benchmarks.torch_published:MnistCNN", image_size=28),
    "dirt_cnn": Measured(torch="benchmarks.torch_published:DirtCNN", image_size=28),
    "densenet121": Measured(torch="benchmarks.torch_published:DenseNet", image_size=64, batch_size=16),
    "efficientnet_lite0": Measured(torch="benchmarks.torch_published:EfficientNetLite", image_size=96, batch_size=16),
}
"""What `--model` and `--models` can name."""

CLASSES = 7


def twin(model: str, kind: str) -> str:
    """The path of a network's `naive` or `torch` twin.

    Raises:
      UserError: there is none.
    """
    path = getattr(lookup("model", model, MODELS), kind)
    if path is None:
        raise UserError(f"model '{model}' has no {kind} twin; expected one in benchmarks/models.py")
    return path
