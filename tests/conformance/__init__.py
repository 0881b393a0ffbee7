"""Numbers of PyTorch that the tests compare with, so that they need no PyTorch; `make_torch_numbers` and, for those of
torchvision's and timm's own networks, `make_torchvision_numbers` say how made, `make_official_numbers` for those of
methods' official code."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("torch_numbers.npz")
OFFICIAL = FILE.with_name("official_numbers.npz")
TORCHVISION = FILE.with_name("torchvision_numbers.npz")


def torch_numbers(name: str) -> dict[str, np.ndarray]:
    """What is stored under `name/`, by the rest of its path."""
    found: dict[str, np.ndarray] = {}
    for file in filter(Path.exists, (FILE, OFFICIAL, TORCHVISION)):
        with np.load(file) as stored:
            paths = [path for path in stored.files if path.startswith(f"{name}/")]
            found |= {path.removeprefix(f"{name}/"): stored[path] for path in paths}
    assert found, f"nothing of {name} in {FILE.parent}; see make_torch_numbers.py and make_torchvision_numbers.py there"
    return found


def check(name: str, got: Mapping[str, np.ndarray], rtol: float, atol: float) -> None:
    """Every number that is stored under `name/` is among those that were got, and the same."""
    wanted = torch_numbers(name)
    assert got.keys() == wanted.keys()
    for path, value in wanted.items():
        np.testing.assert_allclose(got[path], value, rtol=rtol, atol=atol, err_msg=f"{name}/{path}")
