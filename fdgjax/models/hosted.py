"""Published weights by the name of their Hugging Face repository: a file of one revision, known by its checksum.

`huggingface_hub` (the extra `fdgjax[pretrained]`) fetches them and keeps them in its own cache (`HF_HOME`); a file that
is there needs no network, and `HF_HUB_OFFLINE=1` forbids it. `HF_ENDPOINT` names a mirror.
"""

import importlib.util
import os
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from fdgjax.errors import UserError

PACKAGE = "huggingface_hub"


class Hosted(NamedTuple):
    """A file of a repository.

    network: the entry of `MODELS` that it is for. revision: the commit. sha256: of the file, in hexadecimal digits.
    """

    network: str
    revision: str
    sha256: str
    file: str = "model.safetensors"


HOSTED: Mapping[str, Hosted] = {
    "timm/resnet18.tv_in1k": Hosted(
        "resnet18_imagenet",
        "bbd144b3e5565108aad885f145491d11bc6ce807",
        "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
    ),
    "timm/resnet50.tv_in1k": Hosted(
        "resnet50_imagenet",
        "78f3ecfdb38e06d9b8397f662e7ab8fee96026fa",
        "5d061a3c593d795bfe682d9b152bafbcf550579873492def3515b46db1189888",
    ),
}
"""torchvision's ResNets (ImageNet-1k, BSD-3), by the name that `model.pretrained` takes."""


def check_network(name: str, network: str) -> None:
    """Raises a `UserError` for weights of this table that are another network's; other names pass."""
    if name in HOSTED and HOSTED[name].network != network:
        raise UserError(
            f"config.model.pretrained got '{name}' for the model '{network}'; expected "
            f"config.model.name={HOSTED[name].network}, whose weights these are"
        )


def hosted(name: str) -> Path:
    """The verified file of an entry of `HOSTED`, from the cache or else from the network.

    Raises:
      UserError: `huggingface_hub` is not installed; the file is not in the cache and cannot be fetched, or it has
        another checksum.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise UserError(
            f"config.model.pretrained got '{name}', which the package {PACKAGE} fetches, not installed; pip install "
            "'fdgjax[pretrained]'"
        )
    from huggingface_hub import hf_hub_download

    entry = HOSTED[name]
    try:
        # Nobody's token is sent: the files are public.
        found = hf_hub_download(
            name, entry.file, revision=entry.revision, endpoint=os.environ.get("HF_ENDPOINT"), token=False
        )
    except Exception as error:  # the errors of its transports, which differ by version
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"config.model.pretrained got '{name}', which is not in the cache and cannot be fetched ({reason}); "
            "expected a network, a mirror in HF_ENDPOINT, or a .safetensors file"
        ) from error
    return verified(name, Path(found))


def verified(name: str, path: Path) -> Path:
    """The path of an entry's file; a `UserError` where its bytes are others than those that are known."""
    with path.open("rb") as file:
        got = file_digest(file, "sha256").hexdigest()
    if got != HOSTED[name].sha256:
        raise UserError(
            f"config.model.pretrained got '{name}', whose file {path} has the sha256 {got}; expected "
            f"{HOSTED[name].sha256}: delete {path.resolve()} and {path}, and repeat the command"
        )
    return path
