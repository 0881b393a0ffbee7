"""The networks that are measured, and their twins: the same network on XLA's own layers, and in PyTorch."""

from collections.abc import Mapping
from typing import NamedTuple

from fdgjax.errors import UserError
from fdgjax.registry import lookup


class Twins(NamedTuple):
    """Where the same network stands on other layers, as `module:name`, called with `classes` (PyTorch: also
    `image_size`); None where nobody has written it."""

    naive: str | None = None
    torch: str | None = None


MODELS: Mapping[str, Twins] = {
    "inception": Twins("benchmarks.naive:InceptionCNN", "benchmarks.torch_models:InceptionCNN"),
    "digits_cnn": Twins(),
}
"""Keys are those of `fdgjax.models.MODELS`."""

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
