"""How bytes become a network's numbers: the formulas, who chooses, and that no path goes around."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.config import Config, from_plain, make_config, read_config, to_plain
from fdgjax.config.presets import PRESETS
from fdgjax.data.pixels import as_floats
from fdgjax.experiments import build
from fdgjax.models.client_model import as_model
from fdgjax.models.pretrained.convert import WeightFile, note_scaling
from fdgjax.models.scaling import SCALINGS, scaling_function
from fdgjax.utils.errors import UserError
from tests.docs.pages import ROOT, sections
from tests.runs import perceptron, small

__all__ = ["perceptron"]

BYTES = np.arange(256 * 3, dtype=np.int64).reshape(1, 256, 1, 3) % 256
MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
FORMULAS = {
    "signed": lambda byte: byte / 127.5 - 1,
    "unit": lambda byte: byte / 255,
    "imagenet": lambda byte: (byte / 255 - MEAN) / DEVIATION,
    "efficientnet_lite": lambda byte: (byte - 127) / 128,
}


class Seen(nn.Module):
    """Its logits are the pixels it sees."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return x.reshape(len(x), -1) + 0 * self.param("zero", nn.initializers.zeros, (1, 1))


def seen(images: np.ndarray, scaling: str) -> np.ndarray:
    model = as_model(Seen(), images.shape[1:], scaling)
    floats = as_floats(jnp.asarray(images, jnp.uint8))
    output, _ = model.apply(model.init(jax.random.key(0)), floats, True, jax.random.key(0))
    return np.asarray(output.logits).reshape(images.shape)


def test_every_scaling_is_tried() -> None:
    assert set(FORMULAS) == set(SCALINGS)


@pytest.mark.parametrize("name", SCALINGS)
def test_a_network_sees_the_formula(name: str) -> None:
    np.testing.assert_allclose(seen(BYTES, name), FORMULAS[name](BYTES), rtol=1e-6, atol=5e-7)


def test_the_default_is_what_it_ever_was_bit_for_bit() -> None:
    images = jnp.asarray(BYTES, jnp.uint8)
    np.testing.assert_array_equal(seen(BYTES, "signed"), images.astype(jnp.float32) / 127.5 - 1.0)


def test_colours_of_grey_images_are_refused() -> None:
    with pytest.raises(UserError, match=r"data.scaling got 'imagenet'.* 3 channels, but these have 1; expected signed"):
        scaling_function("imagenet", 1)
    assert scaling_function("unit", 1)(jnp.ones((2, 1))).shape == (2, 1)


def with_keys(preset: str = "pacs", **model: str) -> Config:
    config = make_config("fedavg", preset)
    scaling = model.pop("scaling", "")
    config.model.update(model)
    if scaling:
        config.data.scaling = scaling
    return read_config(config)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18_imagenet", "imagenet"),
        ("vit_b8", "signed"),
        ("efficientnet_lite0", "efficientnet_lite"),
        ("deit_b", "imagenet"),
    ],
)
def test_pretrained_weights_choose_and_a_word_wins(name: str, expected: str) -> None:
    assert with_keys(name=name).data.scaling == "signed"
    assert with_keys(name=name, pretrained="some.safetensors").data.scaling == expected
    assert with_keys(name=name, pretrained="some.safetensors", scaling="unit").data.scaling == "unit"


def test_the_resolved_scaling_is_in_the_config_that_is_kept() -> None:
    config = with_keys(name="resnet18_imagenet", pretrained="some.safetensors")
    assert to_plain(config)["data"]["scaling"] == "imagenet"
    assert from_plain(to_plain(config)) == config


def test_an_unknown_scaling_is_one_line() -> None:
    with pytest.raises(UserError, match=r"unknown data.scaling 'units'; .*did you mean 'unit'"):
        with_keys(scaling="units")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_the_official_scaling(preset: str) -> None:
    config = read_config(make_config("fedgala" if preset.startswith("fedgala_") else "fedavg", preset))
    official = {"fdse": "unit", "pretrained": "efficientnet_lite"}
    assert config.data.scaling == official.get(preset.partition("_")[0], "signed")


@pytest.mark.slow
@pytest.mark.usefixtures("perceptron")
def test_an_experiment_s_model_scales(tmp_path: Path) -> None:
    config, found = small(tmp_path), {}
    for name in ("signed", "unit"):
        experiment = build(dataclasses.replace(config, data=dataclasses.replace(config.data, scaling=name)))
        found[name] = experiment.model
    variables: Any = jax.jit(found["unit"].init)(jax.random.key(0))
    x, key = jnp.linspace(-1, 1, 2 * 64).reshape(2, 8, 8, 1), jax.random.key(0)
    outputs = [
        jax.jit(found[name].apply, static_argnums=2)(variables, images, train, key)[0].logits
        for train in (False, True)
        for name, images in (("unit", x), ("signed", (x + 1) / 2))
    ]
    for one in outputs[1:]:
        np.testing.assert_allclose(one, outputs[0], rtol=1e-5, atol=1e-6)


def test_the_scaling_is_said_with_what_expects_it(caplog: pytest.LogCaptureFixture) -> None:
    weights = WeightFile("a.safetensors", "resnet18_imagenet", {})
    with caplog.at_level(logging.INFO, "fdgjax"):
        note_scaling(weights, "imagenet")
        note_scaling(weights, "unit")
        note_scaling(WeightFile("dino.safetensors", "vit_b8", {}), "signed")
    assert "data.scaling=imagenet, as torchvision's and timm's weights expect" in caplog.text
    assert "data.scaling=unit; imagenet is what torchvision's and timm's weights expect" in caplog.text
    assert "data.scaling=signed, as timm's augreg weights (not DINO's of the same names" in caplog.text


def test_every_scaling_is_documented() -> None:
    text = sections(ROOT / "docs" / "data.md")["Scaling"]
    assert all(f"- `{name}`" in text for name in SCALINGS)
