"""The name of a user-defined network changes with its program, and with nothing else; it is trained and evaluated
alike, whatever its argument for the mode is called."""

import importlib
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fdgjax.models.client_model import as_model
from fdgjax.models.user_module import Network, backbone_of, module_name
from fdgjax.utils.errors import UserError

TEXT = """
from functools import partial
import flax.linen as nn
import jax
import numpy as np
from flax import nnx

SLOPE = {"negative": (0.1, 0.2)}
MEAN = np.arange(2000.0)
smooth = partial(nn.celu, alpha=3.0)
squash = jax.nn.tanh
late = 5

class Block(nn.Module):
    GAIN = 2.0

    @property
    def width(self):
        return 4

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(self.GAIN * x)

def act(x):
    return nn.relu(squash(smooth(x)) * SLOPE["negative"][0] - MEAN.mean())

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

def of_slope(slope):
    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(slope * x + x.late)
    return Inner()

def chain():
    return nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(2)])

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
    assert (net, other) == names(written("late = 5", "late = 6"))
    for old, new in (
        *(("nn.relu", "nn.gelu"), ("(self.width)", "(5)"), ("act(Block()(x))", "Block()(x)"), ("return 4", "return 5")),
        *(("(0.1, 0.2)", "(0.3, 0.2)"), ("2000.0)", "2000.0) * 2"), ("alpha=3", "alpha=2"), ("tanh", "sigmoid")),
        ("GAIN = 2.0", "GAIN = 3.0"),
    ):
        changed, same = names(written(old, new))
        assert changed != net
        assert same == other
    same, changed = names(written("self.layer(x)", "self.layer(x) + 1"))
    assert same == net
    assert changed != other
    assert module_name(written("", "").Net(4)) != net


def test_a_name_follows_from_the_values_around_a_class_and_from_functions_among_its_attributes(
    written: Written,
) -> None:
    module = written("", "")
    assert module_name(module.of_slope(1.0)) == module_name(module.of_slope(1.0))
    assert module_name(module.of_slope(1.0)) != module_name(module.of_slope(2.0))
    chain = module_name(module.chain())
    respaced = written("[lambda x: x.reshape(len(x), -1), ", "[ lambda x : x.reshape(len(x),-1) ,")
    assert chain == module_name(respaced.chain())
    assert chain != module_name(written("[lambda x: x.", "[lambda x: 2 * x.").chain())


def layers(x: jax.Array, train: bool) -> jax.Array:
    x = nn.BatchNorm(use_running_average=not train)(x)
    return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))


class Train(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        return layers(x, train)


class Training(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, training: bool = True) -> jax.Array:
        return layers(x, training)


class IsTraining(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, *, is_training: bool = False) -> jax.Array:
        return layers(x, is_training)


class Deterministic(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        return layers(x, not deterministic)


class Both(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, use_running_average: bool = True, deterministic: bool = False) -> jax.Array:
        x = nn.BatchNorm(use_running_average=use_running_average)(x)
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=deterministic)(x))


class OfNNX(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layer = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        return self.layer(x) * (0 if deterministic else 1)


def applied(network: Network, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """The logits and the running mean after one call."""
    model, key = as_model(backbone_of(network)(2), (3,)), jax.random.key(0)
    x = jnp.asarray(np.random.default_rng(0).normal(3, 1, (16, 3)), jnp.float32)
    variables = model.init(key)
    output, changed = model.apply(variables, x, train, key)
    return np.asarray(output.logits), np.asarray((changed or variables)["batch_stats"]["BatchNorm_0"]["mean"])


@pytest.mark.parametrize("network", [Training(), IsTraining(), Deterministic(), Both()])
def test_the_mode_may_have_another_name(network: nn.Module) -> None:
    for train in (False, True):
        for found, expected in zip(applied(network, train), applied(Train(), train), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert applied(network, True)[1].min() > 0


def test_the_mode_of_an_nnx_module_may_have_another_name() -> None:
    model, key = as_model(backbone_of(nnx.bridge.to_linen(OfNNX))(2), (3,)), jax.random.key(0)
    trained, evaluated = (
        model.apply(model.init(key), jnp.ones((1, 3)), train, key)[0].logits for train in (True, False)
    )
    assert np.any(trained)
    assert not np.any(evaluated)


class Inner(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        self.sow("intermediates", "features", x)
        return x


class Outer(nn.Module):
    inner: int
    own: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(self.inner):
            x = Inner()(x)
        if self.own:
            self.sow("intermediates", "features", 2 * x)
        return nn.Dense(2)(x)


@pytest.mark.parametrize(("inner", "own", "wanted"), [(2, True, 2), (1, True, 2), (1, False, 1), (0, False, None)])
def test_features_are_the_outermost_modules_or_the_one_submodules(inner: int, own: bool, wanted: int | None) -> None:
    x, key = jnp.ones((1, 3)), jax.random.key(0)
    model = as_model(backbone_of(Outer(inner, own))(2), (3,))
    found = model.apply(model.init(key), x, False, key)[0].features
    np.testing.assert_array_equal(found, np.zeros((1, 0)) if wanted is None else wanted * x)


def test_of_several_submodules_features_none_are_guessed() -> None:
    model, key = as_model(backbone_of(Outer(2, own=False))(2), (3,)), jax.random.key(0)
    with pytest.raises(
        UserError, match=r"2 submodules of the model sow features \(Inner_0/features, Inner_1/features\)"
    ):
        model.apply(model.init(key), jnp.ones((1, 3)), False, key)
