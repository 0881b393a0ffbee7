"""Which network an experiment trains: the config's word, the method's wish, the network's own kind of units."""

import dataclasses

import pytest

from fdgjax.config import Config, ModelConfig
from fdgjax.experiment import make_module, model_facts
from fdgjax.methods import METHODS
from fdgjax.models import AlexNet, DSEUnit, GaussianHead
from fdgjax.models.units import official_dse_unit


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
def test_units_by_config_then_method_then_model(
    model: ModelConfig, wish: str, expected: AlexNet, facts: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "fedavg", METHODS["fedavg"]._replace(unit=wish))
    config = Config(model=model)
    assert make_module(config, 3) == expected
    assert model_facts(config) == {"model": "alexnet"} | facts


def test_a_head_by_config_or_method(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = GaussianHead(AlexNet(256, 0.25), 3)
    model = ModelConfig("alexnet", 0.25)
    config = Config(model=dataclasses.replace(model, head="gaussian"))
    assert make_module(config, 3) == wrapped
    assert model_facts(config) == {"model": "alexnet", "width": 0.25, "head": "gaussian"}
    assert make_module(Config(model=model), 3) == AlexNet(3, 0.25)
    monkeypatch.setitem(METHODS, "fedavg", METHODS["fedavg"]._replace(head="gaussian"))
    assert make_module(Config(model=model), 3) == wrapped
