"""The order of layers: a network's own order of calls. `test_registry` holds it against the order in which the program
of every network reads variables."""

import jax
import pytest

from fdgjax.models import MODELS, UNITS
from fdgjax.models.client_model import as_model
from fdgjax.models.depth import depth_order, layers
from fdgjax.utils.variables import flatten
from tests.models.test_registry import LAST, shapes, small


def order_of(name: str, unit: str) -> list[str]:
    return depth_order(small(name, unit).init)


def test_the_order_of_alexnets_units() -> None:
    units = [*(f"conv_{i}" for i in range(1, 6)), "linear_1", "linear_2"]
    parts = ("dfe", "bn_dse", "dse", "bn_dfe")
    assert order_of("alexnet", "dse") == [f"{unit}/{part}" for unit in units for part in parts] + ["head"]


def test_a_model_s_own_variables_come_before_its_modules() -> None:
    assert order_of("vit_b8", "")[:3] == ["", "patches", "block_1/norm_1"]


def test_an_init_that_calls_nothing_is_refused() -> None:
    init = jax.jit(as_model(MODELS["digits_cnn"](3, unit=UNITS["norm"]), (8, 8, 1)).init)
    jax.eval_shape(init, jax.random.key(0))
    with pytest.raises(ValueError, match=r"no call of conv_1/bn.* was seen"):
        depth_order(init)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), [("alexnet", "dse_official"), ("resnet18", ""), ("digits_cnn", "augmented")])
def test_every_variable_is_of_one_layer_in_order(name: str, unit: str) -> None:
    model = small(name, unit)
    found = layers(model.init)
    modules = [module for layer in found for module in layer]
    assert len(set(modules)) == len(modules)
    assert set(modules) == set(depth_order(model.init))
    paths = flatten(shapes(name, unit))
    for layer in found:
        assert sum(f"params/{module}/kernel" in paths for module in layer) == 1
    assert found[-1] == (LAST[name],)


def test_modules_without_a_kernel_join_the_layer_before_or_the_first_inside() -> None:
    assert layers(small("alexnet", "dse_official").init)[:3] == [
        ("conv_1", "conv_1/dfe", "conv_1/bn_dse"),
        ("conv_1/dse", "conv_1/bn_dfe"),
        ("conv_2", "conv_2/dfe", "conv_2/bn_dse"),
    ]
