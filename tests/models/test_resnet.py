"""Residual networks: shapes by stem and block, torchvision's initialisation, FDSE's variant."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import MODELS, UNITS, DSEUnit, NormUnit, ResNet
from fdgjax.models.resnet import Block
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten


def outputs(model: ResNet, *size: int) -> list[tuple[int, ...]]:
    """Shapes after each block."""

    def forward(x: jax.Array) -> dict:
        blocks = lambda module, _: isinstance(module, Block)  # noqa: E731
        _, changed = model.init_with_output(jax.random.key(0), x, capture_intermediates=blocks, mutable=True)
        return {name: value for name, value in changed["intermediates"].items() if name != "features"}

    return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(forward, jnp.zeros((1, *size, 3))))]


@pytest.mark.parametrize(
    ("stem", "size", "sides"),
    [
        ("small", (32, 32), (32, 16, 8, 4)),
        ("imagenet", (224, 224), (56, 28, 14, 7)),
        ("small", (17, 17), (17, 9, 5, 3)),
    ],
)
def test_each_stage_halves_the_image_and_doubles_the_channels(
    stem: str, size: tuple[int, int], sides: tuple[int, ...]
) -> None:
    expected = [(1, side, side, 64 * 2**i) for i, side in enumerate(sides) for _ in range(2)]
    assert outputs(ResNet(classes=3, stem=stem), *size) == expected


def test_bottlenecks_widen_four_times() -> None:
    model = ResNet(classes=3, branch="bottleneck", depths=(1, 2), width=1 / 8)
    assert outputs(model, 8, 8) == [(1, 8, 8, 32), (1, 4, 4, 64), (1, 4, 4, 64)]


@pytest.mark.slow
def test_convolutions_start_as_torchvisions() -> None:
    variables: Any = ResNet(classes=3, depths=(2,), width=1 / 2).init(jax.random.key(0), jnp.zeros((1, 4, 4, 3)))
    params = flatten(variables)
    for path, leaf in params.items():
        if path.endswith("layer/kernel"):
            deviation = (2 / (leaf.shape[0] * leaf.shape[1] * leaf.shape[3])) ** 0.5
            np.testing.assert_allclose(leaf.std(), deviation, rtol=0.15)
    assert not any(path.endswith("layer/bias") for path in params)


@pytest.mark.slow
def test_fdses_variant_replaces_the_last_operator_of_each_block() -> None:
    x = jax.ShapeDtypeStruct((1, 16, 16, 3), jnp.float32)
    model = MODELS["resnet50_imagenet"](classes=3, unit=UNITS["dse"])
    params = jax.eval_shape(model.init, jax.random.key(0), x)["params"]
    blocks = [block for name, block in params.items() if name.startswith("stage")]
    assert len(blocks) == 16
    for block in blocks:
        assert set(block["unit_3"]) == {"dfe", "bn_dse", "dse", "bn_dfe"}
        assert all(set(unit) == {"layer", "bn"} for name, unit in block.items() if name != "unit_3")


@pytest.mark.slow
def test_a_branch_without_an_activation_at_its_end() -> None:
    # With ReLU before the sum a block could never lower an input.
    for unit in (NormUnit, DSEUnit):
        model = ResNet(classes=2, width=1 / 16, depths=(1,), unit=unit)
        x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 4, 3)), jnp.float32)

        def intermediates(key: jax.Array, x: jax.Array, model: ResNet = model) -> Any:
            variables = model.init(key, x)
            return model.apply(variables, x, train=True, capture_intermediates=True, mutable=True)[1]["intermediates"]

        block = jax.jit(intermediates)(jax.random.key(0), x)["stage_1_block_1"]
        assert (np.asarray(block["unit_2"]["__call__"][0]) < 0).any()


@pytest.mark.parametrize("wrong", [{"stem": "smal"}, {"branch": "bottelneck"}])
def test_unknown_words_are_user_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="did you mean"):
        jax.eval_shape(ResNet(classes=3, **wrong).init, jax.random.key(0), jnp.zeros((1, 8, 8, 3)))
