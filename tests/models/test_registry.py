"""Every network of the registry: the calling convention, the order of its layers, sizes published and by hand,
and BatchNorm's statistics through the contract."""

import functools
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Model, Output
from fdgjax.models import MODELS, UNITS, AlexNet, DSEUnit, ResNet
from fdgjax.models.client_model import as_model
from fdgjax.models.depth import depth_order
from fdgjax.nn import Dense
from fdgjax.utils.variables import flatten
from tests.marks import mostly_slow
from tests.shallow import SMALLEST, sample, shallow

LAST = dict.fromkeys(MODELS, "head") | dict.fromkeys(("inception", "digits_cnn"), "linear_2")
"""The last layer."""

PUBLISHED: Mapping[tuple[str, str, int], int] = {
    ("inception", "", 7): 928_199,  # hFedF
    ("alexnet", "", 10): 12_974_154,  # FDSE, Table 4: 1.30e7
    ("alexnet", "dse", 10): 6_504_810,  # FDSE, Table 4: 0.65e7
    ("resnet18_imagenet", "", 1000): 11_689_512,  # torchvision
    ("resnet50_imagenet", "", 1000): 25_557_032,  # torchvision
    ("vit_b8", "", 1000): 86_576_872,  # timm
    ("vgg11", "", 1000): 132_863_336,  # torchvision
    ("densenet121", "", 1000): 7_978_856,  # torchvision
    ("deit_b", "", 1000): 86_567_656,  # timm
    ("linear", "", 2): 32 * 2 + 2,
    ("mlp", "", 2): 32 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2,
    ("mlp", "norm", 2): 6_402 + 2 * 2 * 64,
    ("conv1d", "plain", 2): (5 * 3 + 1) * 32 + (5 * 32 + 1) * 64 + (5 * 64 + 1) * 64 + 64 * 2 + 2,
    ("conv1d", "", 2): 31_490 + 2 * (32 + 64 + 64),
    # FDSE's units: half of the channels computed, the others erased from them (window 3 along time).
    ("mlp", "dse", 2): (32 * 32 + 32) + (64 * 32 + 32) + 2 * (32 + 2 * 32 + 2 * 64) + 64 * 2 + 2,
}


def numbers(tree: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


EVERY_UNIT = ("alexnet", "resnet18", "mlp", "conv1d")
KINDS = [
    (name, unit)
    for name in MODELS
    for unit in ("", *(() if name == "linear" else UNITS if name in EVERY_UNIT else ("dse",)))
]
"""Every network and its twin; one chain and one residual network of images, and those of tables and series, with every
kind of unit."""
LARGE = ("densenet121", "efficientnet_lite0", "resnet18_imagenet", "resnet50_imagenet")
QUICK = [
    (name, unit)
    for name, unit in KINDS
    if name in ("alexnet", "resnet10", "mlp", "conv1d") or not (unit or name in LARGE)
]


def network(name: str, unit: str, width: float = 1 / 32) -> nn.Module:
    return shallow(name)(4, width, UNITS[unit] if unit else None)


@functools.cache
def small(name: str, unit: str, width: float = 1 / 32) -> Model:
    """A network for the smallest samples it takes."""
    return as_model(network(name, unit, width), sample(name))


@functools.cache
def shapes(name: str, unit: str, width: float = 1 / 32) -> Any:
    """Of the variables of `small`, which is traced once for it."""
    return jax.eval_shape(small(name, unit, width).init, jax.random.key(0))


def inputs(name: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *sample(name)), jnp.float32)


class Program(NamedTuple):
    """A network applied in training, with what it returns and the input that each variable is."""

    jaxpr: Any
    returned: tuple[Output, Any]
    paths: Mapping[str, Any]


@functools.cache
def in_training(name: str, unit: str) -> Program:
    """The program of `small`, which is traced once for it."""
    leaves, treedef = jax.tree.flatten(shapes(name, unit))

    def apply(leaves: list[Any], x: jax.Array) -> Any:
        return small(name, unit).apply(jax.tree.unflatten(treedef, leaves), x, True, jax.random.key(0))

    program, returned = jax.make_jaxpr(apply, return_shape=True)(leaves, inputs(name))
    return Program(program.jaxpr, returned, flatten(jax.tree.unflatten(treedef, program.jaxpr.invars[: len(leaves)])))


@pytest.mark.parametrize(("name", "unit"), mostly_slow(KINDS, QUICK))
def test_every_model_obeys_the_calling_convention(name: str, unit: str) -> None:
    model, variables = small(name, unit), shapes(name, unit)
    assert set(variables) <= {"params", "batch_stats"}
    apply: Any = model.apply
    evaluated = jax.eval_shape(partial(apply, train=False), variables, inputs(name), key=jax.random.key(0))
    for train, (output, changed) in ((False, evaluated), (True, in_training(name, unit).returned)):
        logits = output.logits
        assert (logits.shape, logits.dtype) == ((2, 4), jnp.float32)
        kept = {key: value for key, value in variables.items() if train and key != "params"}
        chex.assert_trees_all_equal_shapes_and_dtypes(changed, kept)


def order_of_use(name: str, unit: str) -> list[str]:
    """Modules with variables by the first operation of the whole program that reads one of them."""
    program = in_training(name, unit)
    module_of = {id(variable): path.rpartition("/")[0].partition("/")[2] for path, variable in program.paths.items()}
    read = (module_of.get(id(variable)) for equation in program.jaxpr.eqns for variable in equation.invars)
    return list(dict.fromkeys(module for module in read if module is not None))


@pytest.mark.parametrize(("name", "unit"), mostly_slow(KINDS, QUICK))
def test_calls_are_in_the_order_in_which_the_program_reads_variables(name: str, unit: str) -> None:
    order, used = depth_order(small(name, unit).init), order_of_use(name, unit)
    assert sorted(order) == sorted(used)
    # A module that also calls others is put before them, wherever its own variables are read.
    leaves = [path for path in order if path and not any(other.startswith(f"{path}/") for other in order)]
    assert leaves == [path for path in used if path in leaves]
    assert order[-1] in ("head", "linear_2")


@pytest.mark.parametrize(("name", "unit", "classes"), PUBLISHED)
def test_published_number_of_parameters(name: str, unit: str, classes: int) -> None:
    model = as_model(MODELS[name](classes, unit=UNITS[unit] if unit else None), MODELS[name].sample or (224, 224, 3))
    assert numbers(jax.eval_shape(model.init, jax.random.key(0))["params"]) == PUBLISHED[name, unit, classes]


@pytest.mark.parametrize(
    ("name", "unit"),
    [("inception", "plain"), ("alexnet", "norm"), ("resnet18", "norm"), ("mlp", "plain"), ("conv1d", "norm")],
)
def test_a_model_s_own_kind_of_unit(name: str, unit: str) -> None:
    chex.assert_trees_all_equal_shapes_and_dtypes(shapes(name, ""), shapes(name, unit))


@pytest.mark.parametrize("name", MODELS)
def test_features_are_what_the_last_layer_makes_logits_from(name: str) -> None:
    module, variables = network(name, ""), shapes(name, "")
    given: list[tuple[str | None, int]] = []

    def note(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        if isinstance(context.module, Dense):
            given.append((context.module.name, id(args[0])))
        return call(*args, **kwargs)

    def features(variables: Any, x: jax.Array) -> Any:
        with nn.intercept_methods(note):
            logits, changed = module.apply(variables, x, mutable=["intermediates"])
        (sown,) = changed["intermediates"]["features"]
        assert given[-1] == (LAST[name], id(sown))
        return sown, logits

    found, logits = jax.eval_shape(features, variables, inputs(name))
    assert found.shape == (2, variables["params"][LAST[name]]["kernel"].shape[0])
    assert logits.shape == (2, 4)


@pytest.mark.parametrize("name", mostly_slow([name for name in MODELS if name != "linear"], {*MODELS} - {*LARGE}))
def test_width_is_a_factor_on_channels(name: str) -> None:
    few, many = (shapes(name, "", width)["params"] for width in (1 / 8, 1 / 4))
    chex.assert_trees_all_equal_structs(few, many)
    for narrow, wide in zip(jax.tree.leaves(few), jax.tree.leaves(many), strict=True):
        # Twice the channels on one side or on both; images' channels and classes stay, and inception adds its pools'.
        assert wide.size <= 4 * narrow.size
    assert 2 < numbers(many) / numbers(few) < 4.1


def test_the_volume_that_fdse_publishes_for_alexnet() -> None:
    # Table 4: 49.52 MiB with 10 classes, parameters and statistics, four bytes each.
    model = as_model(AlexNet(classes=10), (224, 224, 3))
    assert round(4 * numbers(jax.eval_shape(model.init, jax.random.key(0))) / 2**20, 2) == 49.52


NORMALISED = {
    "alexnet": AlexNet(classes=3, width=1 / 32),
    "dse_resnet": ResNet(classes=3, width=1 / 16, depths=(1, 1), unit=DSEUnit),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMALISED)
def test_statistics_move_in_training_alone(name: str) -> None:
    side = SMALLEST.get(name, 8)
    model = as_model(NORMALISED[name], (side, side, 3))
    x = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (4, side, side, 3)), jnp.float32)
    key = jax.random.key(0)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def calls(x: jax.Array) -> tuple[dict, dict, jax.Array, jax.Array, jax.Array]:
        variables = model.init(key)
        in_training, changed = model.apply(variables, x, True, key)
        before, nothing = model.apply(variables, x, False, key)
        after, _ = model.apply(variables | changed, x, False, key)
        assert not nothing
        return variables["batch_stats"], changed["batch_stats"], *(x.logits for x in (in_training, before, after))

    was, moved, in_training, before, after = calls(x)
    chex.assert_tree_all_finite((moved, in_training, before, after))
    for old, new in zip(jax.tree.leaves(was), jax.tree.leaves(moved), strict=True):
        assert (old != new).any()
    # Evaluation normalises by what was kept, training by the batch.
    assert not jnp.allclose(before, after, rtol=1e-3)
    assert not jnp.allclose(in_training, after, rtol=1e-3)
