"""Units: FDSE's block against its official code, PyTorch's BatchNorm, and names that tell a method what is what."""

from functools import partial
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.models import DSEUnit, NormUnit
from fdgjax.models.units import no_activation, official_dse_unit, plain_unit
from fdgjax.nn import Conv, Dense
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten

CONV = partial(Conv, kernel_size=(3, 3), padding=1)


def images(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def started(unit: Any, x: jax.Array) -> Any:
    return jax.jit(unit.init)(jax.random.key(0), x)


def conformance_variables(case: Any, moment: str) -> Any:
    """The official block's parameters and statistics as ours."""

    def read(name: str) -> jax.Array:
        value = case[f"{moment}.{name}"]
        return jnp.asarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value)

    def norm(name: str) -> Any:
        return {"scale": read(f"{name}.weight"), "bias": read(f"{name}.bias")}

    def statistics(name: str) -> Any:
        return {"mean": read(f"{name}.running_mean"), "var": read(f"{name}.running_var")}

    return {
        "params": {
            "dfe": {"kernel": read("dfe_conv.weight"), "bias": read("dfe_conv.bias")},
            "dse": {"kernel": read("dse_conv.weight")},
            "bn_dse": norm("dse_bn"),
            "bn_dfe": norm("dfe_bn"),
            "bias": read("dfe_bias"),
        },
        "batch_stats": {"bn_dse": statistics("dse_bn"), "bn_dfe": statistics("dfe_bn")},
    }


@pytest.mark.slow
def test_the_official_block(conformance: Path) -> None:
    case = np.load(conformance / "fdse_dseconv.npz")
    x = jnp.asarray(case["x"].transpose(0, 2, 3, 1))
    unit = official_dse_unit(CONV, 8)
    before, after = (conformance_variables(case, moment) for moment in ("before", "after"))
    chex.assert_trees_all_equal_shapes(before, started(unit, x))
    y, changed = unit.apply(before, x, train=True, mutable=["batch_stats"])
    np.testing.assert_allclose(y, case["y_train"].transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    y = unit.apply(after, x, train=False)
    np.testing.assert_allclose(np.asarray(y), case["y_eval_after"].transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)

    # PyTorch keeps the unbiased variance of the batch's n numbers per channel, Flax the biased one.
    many = x.shape[0] * x.shape[1] * x.shape[2]
    for name, statistics in changed["batch_stats"].items():
        was, expected = before["batch_stats"][name], after["batch_stats"][name]
        np.testing.assert_allclose(statistics["mean"], expected["mean"], rtol=1e-4, atol=1e-5)
        unbiased = 0.9 * was["var"] + (statistics["var"] - 0.9 * was["var"]) * (many / (many - 1))
        np.testing.assert_allclose(unbiased, expected["var"], rtol=1e-4)


@pytest.mark.slow
def test_the_papers_block_by_its_equations() -> None:
    x, unit = images(4, 5, 5, 3), DSEUnit(CONV, 6)
    variables = started(unit, x)
    y, _ = unit.apply(variables, x, train=True, mutable=["batch_stats"])
    params = variables["params"]

    def normalised(x: np.ndarray) -> np.ndarray:
        return (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5)

    core = np.maximum(normalised(np.asarray(CONV(3).apply({"params": params["dfe"]}, x))), 0)
    padded, kernel = np.pad(core, ((0, 0), (1, 1), (1, 1), (0, 0))), np.asarray(params["dse"]["kernel"])[:, :, 0]
    erased = sum(padded[:, i : i + 5, j : j + 5] * kernel[i, j] for i in range(3) for j in range(3))
    expected = np.maximum(normalised(np.concatenate([core, erased], -1)), 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ratio", "features"), [(2, 6), (2, 7), (3, 8), (4, 3)])
@pytest.mark.parametrize(
    ("layer", "shape", "window"), [(CONV, (2, 4, 5, 3), 3), (Dense, (2, 3), 1), (Dense, (2, 5, 3), 1)]
)
def test_shapes_of_the_skew_eraser(layer: Any, shape: tuple[int, ...], window: int, ratio: int, features: int) -> None:
    x, unit = images(*shape), DSEUnit(layer, features, ratio=ratio)
    y, variables = jax.eval_shape(unit.init_with_output, jax.random.key(0), x)
    assert y.shape == (*shape[:-1], features)
    core = -(-features // ratio)
    assert variables["params"]["dfe"]["kernel"].shape[-1] == core
    rows, columns, inputs, outputs = variables["params"]["dse"]["kernel"].shape
    assert (rows, columns, inputs) == (window, window, 1)
    assert outputs % core == 0
    assert features - core <= outputs < features


@pytest.mark.parametrize("unit", [DSEUnit, official_dse_unit])
def test_a_unit_of_one_channel_has_nothing_to_erase(unit: Any) -> None:
    y, variables = jax.eval_shape(unit(Dense, 1).init_with_output, jax.random.key(0), images(2, 3))
    assert y.shape == (2, 1)
    assert "dse" not in variables["params"]
    assert all(leaf.size for leaf in jax.tree.leaves(variables))


@pytest.mark.slow
def test_each_channel_of_the_skew_eraser_sees_one_of_the_extractor() -> None:
    unit = DSEUnit(Dense, 8, activation=no_activation, inner_activation=no_activation)
    x = images(4, 3)
    variables = started(unit, x)
    shifted = jax.tree.map(lambda leaf: leaf, variables)
    shifted["params"]["dfe"]["bias"] = shifted["params"]["dfe"]["bias"].at[1].add(1.0)
    moved = jnp.any(unit.apply(variables, x) != unit.apply(shifted, x), axis=0)
    assert moved.tolist() == [False, True, False, False, False, True, False, False]


def test_variables_are_named_by_their_part() -> None:
    shapes = jax.eval_shape(official_dse_unit(CONV, 4).init, jax.random.key(0), images(1, 4, 4, 3))
    names = {path.rpartition("/")[0] for path in flatten(shapes)}
    parts = {"dfe", "dse", "bn_dse", "bn_dfe"}
    assert names == {"params", *(f"params/{part}" for part in parts), "batch_stats/bn_dse", "batch_stats/bn_dfe"}
    plain = set(flatten(started(NormUnit(Dense, 4), images(1, 3))))
    assert plain == {
        *(f"params/{name}" for name in ("layer/kernel", "layer/bias", "bn/scale", "bn/bias")),
        "batch_stats/bn/mean",
        "batch_stats/bn/var",
    }


@pytest.mark.slow
def test_tokens_are_treated_as_a_larger_batch_of_vectors() -> None:
    x, unit = images(4, 5, 3), DSEUnit(Dense, 7)
    variables = started(unit, x)
    y, changed = unit.apply(variables, x, train=True, mutable=["batch_stats"])
    flat, as_changed = unit.apply(variables, x.reshape(20, 3), train=True, mutable=["batch_stats"])
    np.testing.assert_allclose(y.reshape(20, 7), flat, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(changed, as_changed, rtol=1e-4, atol=1e-6)


def test_a_plain_unit_is_its_layer_under_the_unit_s_name() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return plain_unit(Dense, 4, name="linear_1")(x, train=True)

    x = images(3, 2)
    variables: Any = Net().init(jax.random.key(0), x)
    assert set(flatten(variables)) == {"params/linear_1/kernel", "params/linear_1/bias"}
    layer = {"params": variables["params"]["linear_1"]}
    np.testing.assert_array_equal(Net().apply(variables, x), np.maximum(np.asarray(Dense(4).apply(layer, x)), 0))


def test_a_ratio_without_a_skew_eraser_is_a_user_error() -> None:
    with pytest.raises(UserError, match="ratio 1; expected at least 2"):
        started(DSEUnit(Dense, 4, ratio=1), images(1, 3))
