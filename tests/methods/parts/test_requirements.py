"""What methods need of their model and of the federation: refused in one line where it is missing, or chosen."""

import dataclasses
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.contract import Variables
from fdgjax.data.sources.domains import Domains
from fdgjax.experiments import fit_model
from fdgjax.methods import METHODS
from fdgjax.methods.feddg_ga import LOSSES
from fdgjax.methods.parts import requirements
from fdgjax.methods.parts.generated_models import HyperNetHyper
from fdgjax.methods.parts.requirements import Given, Need, check_needs
from fdgjax.models import MODELS
from fdgjax.models.client_model import as_model
from fdgjax.models.user_module import backbone_of
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import norm_paths
from tests.marks import mostly_slow
from tests.toy_models import IMAGE, tiny_model
from tests.toys import build, close, make_case, make_plan, toy_federation

DIGITS = Domains(np.zeros((0, 8, 8, 1), np.uint8), np.zeros(0), np.zeros(0), ("own",), tuple("0123456789"))
NEEDS = [(name, need) for name, entry in METHODS.items() for need in entry.needs]


class Bare(nn.Module):
    """A linear layer, and nothing that a method could need."""

    classes: int = 3

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return nn.Dense(self.classes)(x.reshape(len(x), -1))


def fitted(
    method: str, hyper: Mapping[str, Any] = MappingProxyType({}), clients: int = 5, domains: int = 5, **model: Any
) -> Any:
    config = make_config(method)
    config.update({"model": model, "method": dict(hyper), "client_axis": "map"})
    return fit_model(read_config(config), METHODS[method], DIGITS, None, None, clients, domains)


@pytest.mark.parametrize(("name", "need"), NEEDS, ids=lambda case: getattr(case, "lack", case))
def test_what_a_method_lacks_is_refused_in_one_line(name: str, need: Need) -> None:
    more = {"gap": "accuracy"} if need is LOSSES else {}
    more |= {"part": "byol"} if need is requirements.PREDICTOR and name != "fedsimsiam" else {}
    hyper = METHODS[name].hyper(name=name, **more)
    with pytest.raises(UserError, match=f"method '{name}' got {need.lack}; expected") as error:
        check_needs(name, [need], Given(hyper, as_model(Bare(), IMAGE), IMAGE, 1, 1, 1, inputs=(5,), numeric=True))
    assert "\n" not in str(error.value)
    norm = "norm" if need is requirements.BATCH_NORM else "dense"
    made_for = "fedbyol" if need is requirements.PREDICTOR else name
    check_needs(name, [need], Given(hyper, tiny_model(norm, made_for), IMAGE, 2, 2, 2, inputs=IMAGE))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_what_it_needs_on_a_network_of_its_own_choice(name: str) -> None:
    """The default network has no BatchNorm and no features but those of its last layer."""
    chosen, _ = fitted(name)
    assert chosen.unit in (METHODS[name].unit, "norm")


def test_fedbn_chooses_batch_norm_where_the_network_has_none_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        chosen, client = fitted("fedbn", name="digits_cnn")
        assert chosen.unit == "norm"
        assert norm_paths(jax.eval_shape(client.rest.init, jax.random.key(0)))
        assert "fedbn needs what digits_cnn lacks, so that its units are model.unit=norm" in caplog.text
        caplog.clear()
        assert fitted("fedbn", name="resnet10", width=0.1)[0].unit == ""
        assert fitted("fedavg", name="digits_cnn")[0].unit == ""
        assert not caplog.text


@pytest.mark.parametrize("name", ["fedgala", "fedsimclr"])
def test_a_loss_with_a_predictor_gets_a_head_that_has_one_and_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        assert fitted(name, width=0.02)[0].head == fitted(name, {"part": "moco"}, width=0.02)[0].head == "projection"
        assert not caplog.text
        assert fitted(name, {"part": "byol"}, width=0.02)[0].head == "prediction"
        assert f"{name} needs what digits_cnn lacks, so that its head is model.head=prediction" in caplog.text
    assert fitted(name, {"part": "simsiam"}, head="simsiam", width=0.02)[0].head == "simsiam"
    with pytest.raises(
        UserError, match=r"without a predictor.*leave config.model.head empty, or set prediction"
    ) as told:
        fitted(name, {"part": "simsiam"}, head="projection", width=0.02)
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"unit": "plain"}, {"frozen": -1}, {"name": "bare"}])
def test_fedbn_is_refused_where_nothing_gives_it_batch_norm(model: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "bare", backbone_of(Bare))
    with pytest.raises(
        UserError, match=r"'fedbn' got a model without BatchNorm.*FedAvg; expected config.model.unit=norm"
    ):
        fitted("fedbn", **model)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_start_needs_follows_from_the_weights_whoever_names_them(name: str) -> None:
    open_ = {
        field.name: field.metadata["by_start"] for field in dataclasses.fields(METHODS[name].hyper) if field.metadata
    }
    open_ = {key: by for key, by in open_.items() if by}
    # What generates the clients' parameters has to begin near those of the file.
    assert set(open_) == ({"initialisation"} if issubclass(METHODS[name].hyper, HyperNetHyper) else set())
    config = make_config(name)
    assert all(getattr(read_config(config).method, key) == by.scratch for key, by in open_.items())
    config.model.pretrained = "weights.safetensors"
    assert all(getattr(read_config(config).method, key) == by.pretrained for key, by in open_.items())
    for key, by in open_.items():
        config.method[key] = by.scratch
    assert all(getattr(read_config(config).method, key) == by.scratch for key, by in open_.items())


def predicted(name: str, federation: Any, plan: Any) -> Variables:
    """What predicts for the first client after three rounds, on a model without BatchNorm."""
    method = build(name, federation)
    state = make_case(method, federation, plan).advance(3)
    return method.predict(state.server, jax.tree.map(lambda leaf: leaf[0], state.clients))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["fedgma", "feddg_ga"], ["fedgma"]))
def test_a_method_that_compares_a_rounds_clients_is_fedavg_with_one(name: str) -> None:
    federation, plan = toy_federation(), make_plan(per_round=1)
    close(predicted(name, federation, plan), predicted("fedavg", federation, plan))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["scaffold", "fedbn", "lgfedavg", "partialfed"], ["scaffold"]))
def test_a_method_between_clients_is_fedavg_with_a_single_one(name: str) -> None:
    federation, plan = toy_federation((9,)), make_plan()
    close(predicted(name, federation, plan), predicted("fedavg", federation, plan))
