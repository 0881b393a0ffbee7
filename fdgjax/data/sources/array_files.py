"""Arrays in files, `DATA/<domain>.npz` with `inputs`, `labels`, and perhaps `groups` and `splits`: features, series or
images of the user's own."""

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from fdgjax.data.sources.arrays import DomainArrays, domains_of
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.listing import by_domain, is_folder, list_folder
from fdgjax.utils.errors import UserError

FIELDS = ("inputs", "labels")
DAMAGED = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError)
"""What NumPy raises for a file that it did not save, or that changed since."""


def array_folder(data_dir: str) -> Domains:
    """The arrays in a folder, a domain each, in the order of their names; read into memory.

    Raises:
      UserError: no such folder, two files of one name, one that cannot be read or lacks one of `FIELDS`; or like
        `domains_of`.
    """
    expected = "a folder with a file for each domain, such as site1.npz, site2.npz, with the arrays inputs and labels"
    if not data_dir:
        raise UserError(f"config.data.dir is empty; expected {expected}")
    root = Path(data_dir).expanduser().absolute()
    if not is_folder(root):
        raise UserError(f"no folder {root} (config.data.dir); expected {expected}")
    files = by_domain([path for path in list_folder(root).others if path.suffix.lower() == ".npz"])
    if len(files) < 2:
        raise UserError(f"{root} has {len(files)} file(s) .npz; expected {expected}, at least two")
    return domains_of({domain: read_arrays(path) for domain, path in files.items()})


def read_arrays(path: Path) -> DomainArrays:
    """The arrays of a file that have names of `DomainArrays`; raises like `array_folder`."""
    found = stored_arrays(path)
    if lacking := [name for name in FIELDS if name not in found]:
        raise UserError(
            f"{path} lacks the array '{lacking[0]}', and has {', '.join(found) or 'none'}; expected inputs and labels: "
            "np.savez(file, inputs=..., labels=...)"
        )
    return DomainArrays(**{name: array for name, array in found.items() if name in DomainArrays._fields})


def read_inputs(path: Path) -> np.ndarray:
    """The inputs of a file `.npz`, or the array of a file `.npy`.

    Raises:
      UserError: a file that cannot be read, or has no array `inputs`.
    """
    found = stored_arrays(path)
    if "inputs" not in found:
        raise UserError(f"{path} has {', '.join(found) or 'no arrays'}; expected the array inputs")
    return found["inputs"]


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, a single one of `.npy` as `inputs`; raises a `UserError` if they cannot be read."""
    try:
        stored = np.load(path, allow_pickle=False)
        return {"inputs": stored} if isinstance(stored, np.ndarray) else dict(stored)
    except DAMAGED as error:
        raise UserError(f"cannot read {path} ({error}); expected arrays that NumPy saved, without pickles") from error
