"""Published weights by the name of their Hugging Face repository, pinned by revision and checksum."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fdgjax.data.download.hub import from_hub
from fdgjax.utils.errors import UserError


class Hosted(NamedTuple):
    """The file `model.safetensors` of a repository.

    network: the entry of `MODELS` that it is for. revision: the commit. sha256: of the file, in hexadecimal digits.
    licence: of the weights, as the repository states it.
    """

    network: str
    revision: str
    sha256: str
    licence: str


HOSTED: Mapping[str, Hosted] = {
    "timm/resnet18.tv_in1k": Hosted(
        "resnet18_imagenet",
        "bbd144b3e5565108aad885f145491d11bc6ce807",
        "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
        "BSD-3-Clause",
    ),
    "timm/resnet50.tv_in1k": Hosted(
        "resnet50_imagenet",
        "78f3ecfdb38e06d9b8397f662e7ab8fee96026fa",
        "5d061a3c593d795bfe682d9b152bafbcf550579873492def3515b46db1189888",
        "BSD-3-Clause",
    ),
}
"""torchvision's ResNets (ImageNet-1k), by the name that `model.pretrained` takes."""


def check_network(name: str, network: str) -> None:
    """Raises a `UserError` if `name` is in `HOSTED` for another network; names not in `HOSTED` pass."""
    if name in HOSTED and HOSTED[name].network != network:
        raise UserError(
            f"config.model.pretrained got '{name}' for the model '{network}'; expected "
            f"config.model.name={HOSTED[name].network}, whose weights these are"
        )


def hosted(name: str) -> Path:
    """The verified file of an entry of `HOSTED`; see `from_hub`."""
    entry = HOSTED[name]
    return from_hub(f"hf://{name}@{entry.revision}/model.safetensors", entry.sha256)
