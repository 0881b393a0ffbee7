"""Which network an experiment trains: the config's word, the method's wish, the network's own kind of units."""

import dataclasses
import logging
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from fdgjax.config import Config, DataConfig, ModelConfig, make_config, read_config
from fdgjax.contract import Setup
from fdgjax.data.pixels import as_floats
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.engine.local import Batching
from fdgjax.experiments import Experiment, build, make_method, model_config, model_facts
from fdgjax.experiments.components import check_room
from fdgjax.experiments.evaluations import check_figured
from fdgjax.experiments.model import client_model, fit_model, network_settings
from fdgjax.methods import METHODS, Entry, FedAvg, fedavg
from fdgjax.models import AlexNet, DSEUnit, GaussianHead
from fdgjax.models.client_model import make_network, resized
from fdgjax.models.units import official_dse_unit
from fdgjax.nn import with_mask
from fdgjax.utils.errors import UserError
from tests.toy_models import tiny_model
from tests.toys import domains_of


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


@pytest.mark.slow
@pytest.mark.parametrize("key", ["unbiased_variance", "masked_statistics"])
def test_batchnorms_statistics_by_config(key: str) -> None:
    data = domains_of([4, 4])
    n, mask = 8 * 2 * 2, jnp.ones(8).at[-1].set(0)
    found = []
    plain = ModelConfig("digits_cnn", 1 / 8, unit="norm")
    changes: dict[str, Any] = {key: True}
    for chosen in (plain, dataclasses.replace(plain, **changes)):
        model = client_model(chosen, data, None, DataConfig(scaling="signed"), None, "float32").rest
        variables = jax.jit(model.init)(jax.random.key(0))
        with with_mask(mask):
            _, changed = model.apply(variables, as_floats(jnp.asarray(data.inputs)), True, jax.random.key(0))
        found.append(changed["batch_stats"]["conv_1"]["bn"])
    (default, chosen_one), momentum = found, 0.9
    if key == "masked_statistics":
        assert not np.allclose(default["mean"], chosen_one["mean"])
    else:
        moved, more = (one["var"] - momentum for one in (default, chosen_one))
        np.testing.assert_allclose(more, moved * n / (n - 1), rtol=1e-3)


def test_frozen_statistics_by_config(caplog: pytest.LogCaptureFixture) -> None:
    chosen = ModelConfig("digits_cnn", 1 / 8, unit="norm", frozen_statistics=True)
    with caplog.at_level(logging.INFO, "fdgjax"):
        client_model(chosen, domains_of([4, 4]), None, DataConfig(scaling="signed"), None, "float32")
    assert "frozen_statistics changes nothing: config.model.pretrained names no weights of digits_cnn" in caplog.text


def cropped(image_size: int, crop_size: int, augmentation: str = "domainbed") -> Experiment:
    config = make_config("fedavg")
    config.rounds, config.devices = 1, 1
    config.data.update({"image_size": image_size, "crop_size": crop_size, "augmentation": augmentation})
    return build(read_config(config))


@pytest.mark.slow
def test_a_network_sees_crops_of_larger_images() -> None:
    built, smaller = cropped(16, 8), cropped(8, 0, "none")
    assert built.data.inputs.shape[1:3] == (16, 16)
    assert built.cost == smaller.cost
    shapes = [jax.eval_shape(one.model.init, jax.random.key(0)) for one in (built, smaller)]
    assert shapes[0] == shapes[1]
    fresh = built.init()
    evaluated = built.evaluation.observe(fresh, built.federation)
    _, info = built.round(built.init(), built.train)
    assert np.isfinite(info.loss).all()
    again = built.evaluation.observe(fresh, built.federation)
    jax.tree.map(np.testing.assert_array_equal, evaluated, again)


def test_a_crop_larger_than_the_images_is_refused() -> None:
    with pytest.raises(UserError, match=r"crop_size got 32, but the images have 16x16 pixels; expected at most that"):
        cropped(16, 32)


@pytest.mark.parametrize("samples", [1, 10])
def test_samples_larger_than_what_is_free_are_refused(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((samples, 8, 8, 3), np.uint8)
    for free in (None, images.nbytes):
        monkeypatch.setattr("fdgjax.experiments.components.available_bytes", lambda free=free: free)
        check_room(images)
    monkeypatch.setattr("fdgjax.experiments.components.available_bytes", lambda: images.nbytes - 1)
    with pytest.raises(UserError, match=r"samples need .* are free; expected .*streaming=True"):
        check_room(images)


def test_images_are_resized_as_by_pillow() -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    theirs = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR), np.float32)
    np.testing.assert_allclose(resized(jnp.asarray(image[None], jnp.float32), (8, 8, 3))[0], theirs, atol=1)


def test_an_entry_that_does_not_say_that_its_method_pools_is_refused() -> None:
    entry, setup = METHODS["central"], Setup(tiny_model(), 4, 3)
    config, others = (
        Config(method=entry.hyper(name="central")),
        (PROTOCOLS["leave_one_out"], setup, Batching(1, 2, False)),
    )
    assert make_method(config, entry, *others).pooled
    with pytest.raises(UserError, match=r"'central' has pooled=True, but its Entry says False"):
        make_method(config, METHODS["fedavg"]._replace(name="central", make=entry.make), *others)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda setup, h: None, r"'mine' got NoneType from the function of its Entry; expected it to return an"),
        (
            lambda setup, h: fedavg(setup, h, label=lambda path: "global"),
            r"label 'global' for variable 'params/.*; expected one of shared, personal, local",
        ),
    ],
    ids=["no method", "unknown label"],
)
def test_an_entry_whose_function_does_not_make_a_method_is_refused(make: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Entry("mine", FedAvg, make, "wrong").build(Setup(tiny_model(), 4, 3), FedAvg())


def test_a_method_without_labels_is_not_trained_on_a_servers() -> None:
    config = make_config("fedsimclr", "rotated_digits")
    config.data.protocol = "labelled_server"
    with pytest.raises(UserError, match=r"'fedsimclr' learns without labels, but .* the server's labels trained on"):
        build(read_config(config))


def test_clients_of_one_domain_have_nothing_to_compare() -> None:
    config = make_config("vrex", "rotated_digits")
    config.update({"devices": 1, "method": {"pooled": False}})
    with pytest.raises(
        UserError, match=r"'vrex' got training samples of a single domain.*domains_per_client=2"
    ) as error:
        build(read_config(config))
    assert "\n" not in str(error.value)
    config.data.domains_per_client = 2
    assert not build(read_config(config)).method.pooled


def test_hidden_layers_and_dropout_by_config_are_the_networks_or_refused() -> None:
    chosen = ModelConfig("mlp", hidden="32, 16,8", dropout=0.25)
    made = make_network("mlp", 3, settings=network_settings(chosen))
    assert (made.hidden, made.dropout) == ((32, 16, 8), 0.25)
    assert network_settings(ModelConfig("mlp")) == {}
    for wrong in ("a", "0", "3,-1", "9999999"):
        with pytest.raises(UserError, match="expected the features of each hidden layer"):
            network_settings(ModelConfig("mlp", hidden=wrong))
    with pytest.raises(UserError, match="where some are frozen"):
        network_settings(ModelConfig("mlp", hidden="8", frozen=1))
    with pytest.raises(UserError, match=r"config.model.dropout got 0.25, which the network .* does not have"):
        make_network("linear", 3, settings={"dropout": 0.25})


@pytest.mark.parametrize("method", ["fedavg", "fishr"])
@pytest.mark.parametrize("head", ["projection", "prediction", "simsiam", "moco"])
def test_a_head_without_classes_is_refused_for_a_method_that_learns_from_labels(method: str, head: str) -> None:
    config = make_config(method, "rotated_digits")
    config.model.update({"head": head, "width": 0.1})
    data = domains_of([3, 3])._replace(inputs=np.zeros((6, 8, 8, 1), np.uint8))
    with pytest.raises(UserError, match=f"head got '{head}', with which the network has .* outputs and not the"):
        fit_model(read_config(config), METHODS[method], data, None, None, 2, 2)


@pytest.mark.parametrize("key", ["figures_threshold", "figures_sensitivity"])
def test_a_threshold_of_three_classes_is_refused(key: str) -> None:
    config = make_config("fedavg", "rotated_digits")
    config.update({"figures": "auroc", key: 0.9})
    with pytest.raises(UserError, match=f"{key} got 0.9, a threshold of two classes, but rotated_digits has 3"):
        check_figured(read_config(config), domains_of([3, 3]), [])
