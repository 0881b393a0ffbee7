"""Weights from files by torchvision's and timm's names: every number arrives where it belongs, a misfit is named."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.config import ModelConfig
from fdgjax.contract import Model
from fdgjax.errors import UserError
from fdgjax.experiment import build
from fdgjax.models import HEADS, MODELS
from fdgjax.models.client_model import as_model
from fdgjax.models.pretrained import PRETRAINED, convert, read_weights, starting_from
from fdgjax.variables import flatten
from tests.runs import small
from tests.toys import compiling_quickly

Tensors = dict[str, np.ndarray]
CLASSES = 3
SIDE = 16
WIDTHS = {"resnet18_imagenet": 1 / 16, "resnet50_imagenet": 1 / 16, "vit_b8": 1 / 6}
"""The transformer's has two heads."""


def numbers(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    rng = np.random.default_rng(0)
    draw = lambda shape: rng.normal(0, 0.3, shape).astype(np.float32)  # noqa: E731
    made = {name: draw(shape) for name, shape in shapes.items()}
    return {name: np.abs(value) + 0.5 if name.endswith("running_var") else value for name, value in made.items()}


def batch_norm(name: str, features: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{leaf}": (features,) for leaf in ("weight", "bias", "running_mean", "running_var")}


def resnet(depths: tuple[int, ...], windows: tuple[int, ...], expansion: int, channels: int = 3) -> Tensors:
    """torchvision's names and shapes, written down from its layers; a first stage of 4 channels."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (4, channels, 7, 7)} | batch_norm("bn1", 4)
    before = 4
    for stage, depth in enumerate(depths):
        inner, outer = 4 * 2**stage, 4 * 2**stage * expansion
        for block in range(depth):
            name, entering = f"layer{stage + 1}.{block}", before
            for i, window in enumerate(windows, start=1):
                leaving = outer if i == len(windows) else inner
                shapes[f"{name}.conv{i}.weight"] = (leaving, entering, window, window)
                shapes |= batch_norm(f"{name}.bn{i}", leaving)
                entering = leaving
            if before != outer:
                shapes[f"{name}.downsample.0.weight"] = (outer, before, 1, 1)
                shapes |= batch_norm(f"{name}.downsample.1", outer)
            before = outer
    return numbers(shapes | {"fc.weight": (CLASSES, before), "fc.bias": (CLASSES,)})


def vit(features: int = 128, depth: int = 12) -> Tensors:
    """timm's names and shapes, for images of 2 x 2 patches."""
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, features), "pos_embed": (1, 5, features)}
    linear = {"patch_embed.proj": (features, 3, 8, 8), "norm": (features,), "head": (CLASSES, features)}
    for i in range(depth):
        linear |= {f"blocks.{i}.{name}": (features,) for name in ("norm1", "norm2")}
        linear |= {f"blocks.{i}.attn.qkv": (3 * features, features), f"blocks.{i}.attn.proj": (features, features)}
        linear |= {f"blocks.{i}.mlp.fc1": (4 * features, features), f"blocks.{i}.mlp.fc2": (features, 4 * features)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return numbers(shapes)


FILES: Mapping[str, Callable[[], Tensors]] = {
    "resnet18_imagenet": lambda: resnet((2, 2, 2, 2), (3, 3), 1),
    "resnet50_imagenet": lambda: resnet((3, 4, 6, 3), (1, 3, 1), 4),
    "vit_b8": vit,
}


@functools.cache
def model_of(name: str, classes: int = CLASSES) -> Model:
    return as_model(MODELS[name](classes, WIDTHS[name]), (SIDE, SIDE, 3))


@functools.cache
def shapes_of(name: str, classes: int = CLASSES) -> Any:
    return jax.eval_shape(model_of(name, classes).init, jax.random.key(0))


def saved(tensors: Tensors, tmp_path: Path) -> str:
    path = tmp_path / "weights.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
    return str(path)


def loaded(name: str, tensors: Tensors, tmp_path: Path, classes: int = CLASSES) -> dict[str, np.ndarray]:
    return convert(read_weights(saved(tensors, tmp_path), name), shapes_of(name, classes))


def test_every_table_is_tried() -> None:
    assert set(FILES) == set(PRETRAINED) <= set(MODELS)


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_number_of_the_file_is_in_one_variable(name: str, tmp_path: Path) -> None:
    tensors = FILES[name]()
    found = loaded(name, tensors | {"bn1.num_batches_tracked": np.array(7)}, tmp_path)
    shapes = flatten(shapes_of(name))
    assert {path: (leaf.shape, leaf.dtype) for path, leaf in found.items()} == {
        path: (leaf.shape, leaf.dtype) for path, leaf in shapes.items()
    }
    one, other = (np.sort(np.concatenate([leaf.ravel() for leaf in tree.values()])) for tree in (found, tensors))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_become_single(dtype: type, tmp_path: Path) -> None:
    tensors = {name: value.astype(dtype) for name, value in FILES["resnet18_imagenet"]().items()}
    found = loaded("resnet18_imagenet", tensors, tmp_path)
    assert {leaf.dtype for leaf in found.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(found["params/head/bias"], tensors["fc.bias"].astype(np.float32))


PLACES = {
    "resnet18_imagenet": [
        ("batch_stats/stem/bn/var", "bn1.running_var", ()),
        ("params/stage_3_block_2/unit_1/bn/scale", "layer3.1.bn1.weight", ()),
        ("params/stage_2_block_1/shortcut/layer/kernel", "layer2.0.downsample.0.weight", (2, 3, 1, 0)),
    ],
    "resnet50_imagenet": [("params/stage_3_block_6/unit_2/layer/kernel", "layer3.5.conv2.weight", (2, 3, 1, 0))],
    "vit_b8": [
        ("params/block_12/mlp_1/kernel", "blocks.11.mlp.fc1.weight", (1, 0)),
        ("params/block_1/norm_2/scale", "blocks.0.norm2.weight", ()),
    ],
}


@pytest.mark.parametrize("name", PRETRAINED)
def test_variables_and_their_tensors(name: str, tmp_path: Path) -> None:
    tensors = FILES[name]()
    found = loaded(name, tensors, tmp_path)
    for path, theirs, order in PLACES[name]:
        np.testing.assert_array_equal(found[path], tensors[theirs].transpose(order) if order else tensors[theirs])


def test_attention_s_one_tensor_is_queries_keys_and_values_of_each_head(tmp_path: Path) -> None:
    tensors = vit()
    found = loaded("vit_b8", tensors, tmp_path)
    x = np.random.default_rng(1).normal(size=128).astype(np.float32)
    # timm: qkv(x) of [3, heads, size].
    together = (tensors["blocks.3.attn.qkv.weight"] @ x + tensors["blocks.3.attn.qkv.bias"]).reshape(3, 2, 64)
    for which, expected in zip(("query", "key", "value"), together, strict=True):
        kernel, bias = (found[f"params/block_4/attention/{which}/{leaf}"] for leaf in ("kernel", "bias"))
        np.testing.assert_allclose(np.einsum("f,fhd->hd", x, kernel) + bias, expected, rtol=1e-4, atol=1e-4)
    out, heads = found["params/block_4/attention/out/kernel"], x.reshape(2, 64)
    expected = tensors["blocks.3.attn.proj.weight"] @ x
    np.testing.assert_allclose(np.einsum("hd,hdf->f", heads, out), expected, rtol=1e-4, atol=1e-4)


def torch_resnet18(t: Any, x: Any, torch: Any) -> Any:
    """torchvision's forward in evaluation, from its names."""

    def unit(x: Any, conv: str, bn: str, stride: int) -> Any:
        weight = t[f"{conv}.weight"]
        y = torch.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        statistics = (t[f"{bn}.{leaf}"] for leaf in ("running_mean", "running_var", "weight", "bias"))
        return torch.nn.functional.batch_norm(y, *statistics)

    x = torch.max_pool2d(unit(x, "conv1", "bn1", 2).relu(), 3, 2, 1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = unit(x, f"{name}.conv1", f"{name}.bn1", stride).relu()
            y = unit(y, f"{name}.conv2", f"{name}.bn2", 1)
            down = f"{name}.downsample"
            x = (y + (unit(x, f"{down}.0", f"{down}.1", stride) if f"{down}.0.weight" in t else x)).relu()
    return x.mean((2, 3)) @ t["fc.weight"].T + t["fc.bias"]


def torch_vit(t: Any, x: Any, torch: Any) -> Any:
    """timm's forward, from its names."""
    f = torch.nn.functional

    def linear(x: Any, name: str) -> Any:
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        return f.layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], 1e-6)

    x = torch.conv2d(x, t["patch_embed.proj.weight"], t["patch_embed.proj.bias"], stride=8).flatten(2).transpose(1, 2)
    x = torch.cat([t["cls_token"].expand(len(x), -1, -1), x], 1) + t["pos_embed"]
    for i in range(12):
        name = f"blocks.{i}"
        qkv = linear(norm(x, f"{name}.norm1"), f"{name}.attn.qkv").reshape(len(x), -1, 3, 2, 64).permute(2, 0, 3, 1, 4)
        attended = f.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
        x = x + linear(attended, f"{name}.attn.proj")
        x = x + linear(f.gelu(linear(norm(x, f"{name}.norm2"), f"{name}.mlp.fc1")), f"{name}.mlp.fc2")
    return linear(norm(x, "norm")[:, 0], "head")


@pytest.mark.parametrize(("name", "forward"), [("resnet18_imagenet", torch_resnet18), ("vit_b8", torch_vit)])
def test_logits_are_those_of_pytorch(name: str, forward: Callable[..., Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {key: value / 4 if value.ndim == 2 else value for key, value in FILES[name]().items()}
    model = starting_from(read_weights(saved(tensors, tmp_path), name), model_of(name))
    x = np.random.default_rng(1).uniform(-1, 1, (2, SIDE, SIDE, 3)).astype(np.float32)
    ours = jax.jit(lambda x: model.apply(model.init(jax.random.key(0)), x, False, jax.random.key(0))[0].logits)(x)
    theirs = forward(
        {k: torch.from_numpy(v) for k, v in tensors.items()}, torch.from_numpy(x).permute(0, 3, 1, 2), torch
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.parametrize("held", [5, 0])
def test_a_last_layer_that_does_not_fit_starts_fresh(
    held: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = FILES["resnet18_imagenet"]()
    head = {"fc.weight": np.zeros((held, 32), np.float32), "fc.bias": np.zeros(held, np.float32)}
    tensors = {name: value for name, value in tensors.items() if not name.startswith("fc.")} | (head if held else {})
    with caplog.at_level(logging.INFO, "fdgjax"):
        found = loaded("resnet18_imagenet", tensors, tmp_path)
    assert set(flatten(shapes_of("resnet18_imagenet"))) - set(found) == {"params/head/kernel", "params/head/bias"}
    said = "has a last layer for 5 classes" if held else "has no last layer"
    assert f"weights.safetensors {said}: that for 3 classes starts fresh" in caplog.text


def without(name: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.pop(name)


def put(name: str, *shape: int, dtype: type = np.float32) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: np.zeros(shape, dtype)})


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("resnet18_imagenet", without("layer3.1.bn2.running_var"), r"no tensor 'layer3.1.bn2.running_var'.*\[16\]"),
        ("resnet18_imagenet", without("fc.bias"), r"no tensor 'fc.bias'; expected one of shape \[3\]"),
        ("resnet18_imagenet", put("conv1.weight", 4, 1, 7, 7), r"'conv1.weight' of shape \[4, 1, 7, 7\] .*\[4, 3, 7,"),
        ("resnet18_imagenet", put("bn1.bias", 4, dtype=np.int8), r"'bn1.bias' .* type int8; expected floats of \[4\]"),
        ("resnet18_imagenet", put("fc.weight", 3, 31), r"'fc.weight' of shape \[3, 31\] .*of \[3, 32\]"),
        ("resnet18_imagenet", put("layer5.0.conv1.weight", 2), r"'layer5.0.conv1.weight', which resnet18.* no place"),
        ("vit_b8", put("pos_embed", 1, 785, 128), r"'pos_embed' of shape \[1, 785, 128\] .*\[1, 5, .*data.image_size"),
        ("vit_b8", put("patch_embed.proj.weight", 128, 3, 16, 16), r"'patch_embed.proj.weight' of .*\[128, 3, 8, 8\]"),
        (
            "vit_b8",
            put("blocks.0.attn.qkv.weight", 128, 128),
            r"'blocks.0.attn.qkv.weight' .*expected floats of \[384, 128\]",
        ),
        ("vit_b8", put("fc_norm.weight", 128), r"'fc_norm.weight', which vit_b8 has no place for"),
    ],
)
def test_the_first_misfit_is_named(name: str, spoil: Callable[[Tensors], Any], said: str, tmp_path: Path) -> None:
    tensors = FILES[name]()
    spoil(tensors)
    with pytest.raises(UserError, match=said) as caught:
        loaded(name, tensors, tmp_path)
    assert "weights.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("network", "unit", "content", "said"),
    [
        ("inception", "", b"", r"for the model 'inception'; expected one of .*resnet18_imagenet, resnet50_.*, vit_b8$"),
        ("resnet18_imagenet", "dse", b"", r"with units 'dse' .*; expected resnet18_imagenet's own, 'norm', or no file"),
        ("vit_b8", "norm", b"", r"with units 'norm' .*; expected vit_b8's own, 'plain'"),
        ("vit_b8", "plain", None, r"cannot be read \(.*No such file.*\); expected a .safetensors file"),
        ("resnet18_imagenet", "norm", b"PK\3\4 of torch.save", r"cannot be read \(.*\); expected a .safetensors file"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    network: str, unit: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "weights.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        read_weights(str(path), network, unit)
    assert "\n" not in str(caught.value)


def test_an_experiment_starts_from_the_file_with_a_last_layer_of_its_own(cache: Path, tmp_path: Path) -> None:
    tensors = resnet((2, 2, 2, 2), (3, 3), 1, channels=1)
    config = small(cache, model="resnet18_imagenet", seeds=2)
    config = dataclasses.replace(
        config, model=ModelConfig("resnet18_imagenet", 1 / 16, pretrained=saved(tensors, tmp_path))
    )
    experiment = build(config)
    assert experiment.facts["pretrained"] == config.model.pretrained
    found = convert(read_weights(config.model.pretrained, config.model.name), experiment.shapes)
    with compiling_quickly():
        started = flatten(experiment.init().server.variables)
    assert {path: leaf.shape for path, leaf in started.items()} == {
        path: (2, *leaf.shape) for path, leaf in flatten(experiment.shapes).items()
    }
    for path, leaf in found.items():
        np.testing.assert_array_equal(started[path], np.stack([leaf] * 2))
    assert not np.array_equal(*started["params/head/kernel"])


def test_a_head_after_the_network_starts_fresh(tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    headed = HEADS["gaussian"](lambda outputs: MODELS[name](outputs, WIDTHS[name]), CLASSES, 1 / 256)
    shapes = jax.eval_shape(as_model(headed, (SIDE, SIDE, 3)).init, jax.random.key(0))
    found = convert(read_weights(str(file), name), shapes)
    assert set(found) == {path for path in flatten(shapes_of(name)) if not path.startswith("params/head/")}


def test_a_method_with_other_units_says_so_before_the_data_are_read(cache: Path) -> None:
    config = small(cache, "fdse", "resnet18_imagenet")
    model = dataclasses.replace(config.model, pretrained="weights.safetensors")
    config = dataclasses.replace(config, model=model, data=dataclasses.replace(config.data, name="pacs"))
    with pytest.raises(UserError, match=r"with units 'dse' .*; expected resnet18_imagenet's own"):
        build(config)
