"""Costs against published ones and by hand."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import pytest

from fdgjax.cli.models import cost_table
from fdgjax.models import MODELS, UNITS, DSEUnit
from fdgjax.models.cost import Cost, cost
from fdgjax.nn import ConvTranspose, Dense

TABLE_4: Mapping[str, tuple[float, float, float]] = {"norm": (1.30e7, 49.52, 4.41e10), "dse": (0.65e7, 24.87, 2.24e10)}
"""FDSE: parameters, MiB sent by a client, and FLOPs; 10 classes."""


def alexnet(unit: str, side: int) -> Cost:
    return cost(MODELS["alexnet"](10, unit=UNITS[unit]), (side, side, 3))


@pytest.mark.parametrize("unit", TABLE_4)
def test_fdses_table_4(unit: str) -> None:
    # The paper says neither image size nor batch of its FLOPs; a batch of 50 of 256x256 images explains both rows.
    parameters, mebibytes, flops = TABLE_4[unit]
    ours = alexnet(unit, 256)
    assert ours.parameters == pytest.approx(parameters, rel=5e-3)
    assert ours.bytes / 2**20 == pytest.approx(mebibytes, rel=1e-3)
    assert 50 * ours.flops == pytest.approx(flops, rel=2e-2)


def test_fdses_saving() -> None:
    before, after = alexnet("norm", 224), alexnet("dse", 224)
    published = [there / here for here, there in zip(TABLE_4["norm"], TABLE_4["dse"], strict=True)]
    assert [there / here for here, there in zip(before, after, strict=True)] == pytest.approx(published, rel=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "billions"), [("resnet18_imagenet", 1.814), ("resnet50_imagenet", 4.089)])
def test_torchvisions_multiply_adds(name: str, billions: float) -> None:
    assert round(cost(MODELS[name](1000), (224, 224, 3)).flops / 1e9, 3) == billions


def test_tokens_by_hand() -> None:
    class Small(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
            tokens = Dense(4)(x.reshape(len(x), 6, 3))
            tokens = nn.MultiHeadDotProductAttention(2)(tokens)
            return DSEUnit(Dense, 8)(tokens, train=train)

    linear, attention, last = 6 * 4 * 3, 4 * 6 * 4 * 4 + 2 * 6 * 6 * 4, 6 * 4 * 4 + 6 * 4
    counted = cost(Small(), (2, 3, 3))
    assert counted.flops == linear + attention + last
    # Linear; four linear layers; the eraser's two, BN_dse of 4 and BN_dfe of 8.
    assert counted.parameters == (4 * 3 + 4) + 4 * (4 * 4 + 4) + (4 * 4 + 4 + 4 + 2 * 4 + 2 * 8)
    assert counted.bytes == 4 * (counted.parameters + 2 * 4 + 2 * 8)


class Attention(nn.Module):
    names: tuple[str, ...]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        queries, keys = x.reshape(len(x), 6, 4), x.reshape(len(x), 6, 4)[:, :2]
        tokens = queries, *[keys] * len(self.names[1:])
        named: dict[str, Any] = dict(zip(self.names, tokens, strict=True))
        return nn.MultiHeadDotProductAttention(2)(**named)


@pytest.mark.parametrize(
    ("names", "keys"), [(("inputs_q",), 6), (("inputs_q", "inputs_k", "inputs_v"), 2), (("inputs_q", "inputs_kv"), 2)]
)
def test_attention_whose_arguments_are_named(names: tuple[str, ...], keys: int) -> None:
    assert cost(Attention(names), (2, 3, 4)).flops == (2 * 6 + 2 * keys) * 4 * 4 + 2 * 6 * keys * 4


class Enlarging(nn.Module):
    layer: nn.Module

    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        y: jax.Array = self.layer(x)
        return y


@pytest.mark.parametrize("layer", [ConvTranspose(5, (2, 2)), nn.ConvTranspose(5, (2, 2), strides=(2, 2))])
def test_a_transposed_convolution_by_hand(layer: nn.Module) -> None:
    assert cost(Enlarging(layer), (3, 4, 7)).flops == 3 * 4 * 2 * 2 * 7 * 5


def test_the_table_says_which_network_cannot_take_the_images() -> None:
    some = {name: MODELS[name] for name in ("digits_cnn", "alexnet")}
    lines = list(cost_table(some, 32, 10))
    counted = 32**2 * 16 * 9 * 3 + 32**2 * 32 * 9 * 16 + 512 * 64 + 64 * 10
    assert lines[1].split() == ["digits_cnn", "own", "0.04", "0.15", f"{counted / 1e6:.2f}"]
    assert lines[3].split()[:3] == ["dse", "/", "own"]
    assert "alexnet" in lines[4]
    assert "at least 63 x 63" in lines[4]
