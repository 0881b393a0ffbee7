"""Which network an experiment trains: the config's word, the method's wish, the network's own kind of units."""

import dataclasses

import flax.linen as nn
import pytest

from fdgjax.building import make_method, model_config, model_facts
from fdgjax.config import Config, ModelConfig
from fdgjax.contract import Setup
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.engine.local import Batching
from fdgjax.errors import UserError
from fdgjax.methods import METHODS
from fdgjax.models import AlexNet, DSEUnit, GaussianHead
from fdgjax.models.client_model import make_network
from fdgjax.models.units import official_dse_unit
from tests.toy_models import tiny_model


def network_of(model: ModelConfig) -> nn.Module:
    return make_network(model.name, 3, width=model.width, unit=model.unit, head=model.head)


@pytest.mark.parametrize(
    ("model", "wish", "expected", "facts"),
    [
        (ModelConfig("alexnet"), "", AlexNet(3), {}),
        (ModelConfig("alexnet", 0.25), "", AlexNet(3, 0.25), {"width": 0.25}),
        (ModelConfig("alexnet"), "dse", AlexNet(3, unit=DSEUnit), {"unit": "dse"}),
        (ModelConfig("alexnet", unit="dse"), "", AlexNet(3, unit=DSEUnit), {"unit": "dse"}),
        (
            ModelConfig("alexnet", unit="dse_official"),
            "dse",
            AlexNet(3, unit=official_dse_unit),
            {"unit": "dse_official"},
        ),
    ],
)
def test_units_by_config_then_method_then_model(model: ModelConfig, wish: str, expected: AlexNet, facts: dict) -> None:
    chosen = model_config(model, METHODS["fedavg"]._replace(unit=wish))
    assert network_of(chosen) == expected
    assert model_facts(chosen) == {"model": "alexnet"} | facts


def test_a_head_by_config_or_method() -> None:
    wrapped = GaussianHead(AlexNet(256, 0.25), 3)
    model, entry = ModelConfig("alexnet", 0.25), METHODS["fedavg"]
    by_config = model_config(dataclasses.replace(model, head="gaussian"), entry)
    assert network_of(by_config) == wrapped
    assert model_facts(by_config) == {"model": "alexnet", "width": 0.25, "head": "gaussian"}
    assert network_of(model_config(model, entry)) == AlexNet(3, 0.25)
    assert network_of(model_config(model, entry._replace(head="gaussian"))) == wrapped


def test_an_entry_that_does_not_say_that_its_method_pools_is_refused() -> None:
    entry, setup = METHODS["central"], Setup(tiny_model(), 4, 3)
    config, others = (
        Config(method=entry.hyper(name="central")),
        (PROTOCOLS["leave_one_out"], setup, Batching(1, 2, False)),
    )
    assert make_method(config, entry, *others).pooled
    with pytest.raises(UserError, match=r"'central' has pooled=True, but its Entry says False"):
        make_method(config, METHODS["fedavg"]._replace(name="central", build=entry.build), *others)
