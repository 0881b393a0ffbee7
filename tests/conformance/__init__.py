"""Numbers of PyTorch that the tests compare with, so that they need no PyTorch; `make_torch_numbers` says how made."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("torch_numbers.npz")


def torch_numbers(name: str) -> dict[str, np.ndarray]:
    """What is stored under `name/`, by the rest of its path."""
    with np.load(FILE) as stored:
        found = {path.removeprefix(f"{name}/"): stored[path] for path in stored.files if path.startswith(f"{name}/")}
    assert found, f"{FILE.name} has nothing of {name}; see tests/conformance/make_torch_numbers.py"
    return found


def check(name: str, got: Mapping[str, np.ndarray], rtol: float, atol: float) -> None:
    """Every number that is stored under `name/` is among those that were got, and the same."""
    wanted = torch_numbers(name)
    assert got.keys() == wanted.keys()
    for path, value in wanted.items():
        np.testing.assert_allclose(got[path], value, rtol=rtol, atol=atol, err_msg=f"{name}/{path}")
