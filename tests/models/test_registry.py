"""Every network of the registry: the calling convention, published sizes, and BatchNorm's statistics through the
contract."""

from collections.abc import Mapping
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.experiment import as_model
from fdgjax.models import MODELS, AlexNet, DSEUnit, ResNet

SMALLEST = {"alexnet": 63, "dse_alexnet": 63}
"""Side of the smallest images, where small ones are too small."""

PUBLISHED: Mapping[tuple[str, int], int] = {
    ("inception", 7): 928_199,  # hFedF
    ("alexnet", 10): 12_974_154,  # FDSE, Table 4: 1.30e7
    ("dse_alexnet", 10): 6_504_810,  # FDSE, Table 4: 0.65e7
    ("resnet18_imagenet", 1000): 11_689_512,  # torchvision
    ("resnet50_imagenet", 1000): 25_557_032,  # torchvision
}


def numbers(tree: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_obeys_the_calling_convention(name: str) -> None:
    side = SMALLEST.get(name, 16)
    model = as_model(MODELS[name](classes=4), (side, side, 3))
    variables = jax.eval_shape(model.init, jax.random.key(0))
    assert set(variables) <= {"params", "batch_stats"}
    x = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)
    for train in (False, True):
        apply = partial(model.apply, train=train)
        output, changed = jax.eval_shape(apply, variables, x, key=jax.random.key(0))
        logits = output.logits
        assert (logits.shape, logits.dtype) == ((2, 4), jnp.float32)
        kept = {key: value for key, value in variables.items() if train and key != "params"}
        chex.assert_trees_all_equal_shapes_and_dtypes(changed, kept)


@pytest.mark.parametrize(("name", "classes"), PUBLISHED)
def test_published_number_of_parameters(name: str, classes: int) -> None:
    model = as_model(MODELS[name](classes=classes), (224, 224, 3))
    assert numbers(jax.eval_shape(model.init, jax.random.key(0))["params"]) == PUBLISHED[name, classes]


def test_the_volume_that_fdse_publishes_for_alexnet() -> None:
    # Table 4: 49.52 MiB with 10 classes, parameters and statistics, four bytes each.
    model = as_model(AlexNet(classes=10), (224, 224, 3))
    assert round(4 * numbers(jax.eval_shape(model.init, jax.random.key(0))) / 2**20, 2) == 49.52


NORMALISED = {
    "alexnet": AlexNet(classes=3, width=1 / 32),
    "dse_alexnet": AlexNet(classes=3, width=1 / 32, unit=DSEUnit),
    "resnet": ResNet(classes=3, width=4, depths=(1, 1)),
    "dse_resnet": ResNet(classes=3, width=4, depths=(1, 1), last_unit=DSEUnit),
}


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
