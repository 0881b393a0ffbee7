"""The name of a user-defined network changes with its program, and with nothing else."""

import importlib
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from flax import nnx

from fdgjax.models.user_module import module_name

TEXT = """
import flax.linen as nn
from flax import nnx

class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(x)

def act(x):
    return nn.relu(x)

class Net(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x):
        # a comment
        return nn.Dense(self.outputs)(act(Block()(x)))

class Other(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)

ROUNDS = 3
"""
Written = Callable[[str, str], ModuleType]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Writes the program, with one change, to a file and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(old: str, new: str) -> ModuleType:
        assert old in TEXT
        (tmp_path / "networks_of_a_user.py").write_text(TEXT.replace(old, new))
        linecache.clearcache()
        importlib.invalidate_caches()
        sys.modules.pop("networks_of_a_user", None)
        return importlib.import_module("networks_of_a_user")

    return write


def names(module: ModuleType) -> tuple[str, str]:
    return module_name(module.Net(3)), module_name(nnx.bridge.to_linen(module.Other))


def test_a_name_follows_from_the_program(written: Written) -> None:
    net, other = names(written("", ""))
    assert (net, other) == names(written("# a comment", "# another"))
    assert (net, other) == names(written("ROUNDS = 3", "ROUNDS = 4"))
    for old, new in (("relu", "gelu"), ("nn.Dense(4)", "nn.Dense(5)"), ("act(Block()(x))", "Block()(x)")):
        changed, same = names(written(old, new))
        assert changed != net
        assert same == other
    changed, same = names(written("self.layer(x)", "self.layer(x) + 1")), net
    assert (changed[0], changed[1] != other) == (same, True)
    assert module_name(written("", "").Net(4)) != net
