"""Heads: the Gaussian one, whose z is drawn in training and is its mean otherwise; SimSiam's and MoCo's own; styles,
attention and adapters inside the network."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.methods.parts.requirements import last_layer, projection_size
from fdgjax.models import HEADS, MODELS, GaussianHead, ViT
from fdgjax.models.client_model import as_model
from fdgjax.utils.variables import flatten
from tests.marks import mostly_slow
from tests.shallow import SMALLEST, shallow
from tests.toy_models import CLASSES, IMAGE, DenseNet

MODEL = as_model(GaussianHead(DenseNet(classes=8), CLASSES), IMAGE)
IMAGES = jnp.linspace(-1, 1, 2 * 16).reshape(2, *IMAGE)


def test_variables_are_the_networks_and_the_heads() -> None:
    inner = jax.eval_shape(as_model(DenseNet(classes=8), IMAGE).init, jax.random.key(0))
    paths = {path: leaf.shape for path, leaf in flatten(jax.eval_shape(MODEL.init, jax.random.key(0))).items()}
    assert {path: leaf.shape for path, leaf in flatten(inner).items()}.items() <= paths.items()
    assert {path: shape for path, shape in paths.items() if path.startswith("params/gaussian")} == {
        "params/gaussian/classifier/kernel": (4, CLASSES),
        "params/gaussian/classifier/bias": (CLASSES,),
        "params/gaussian/reference_mean": (CLASSES, 4),
        "params/gaussian/reference_deviation": (CLASSES, 4),
        "params/gaussian/scale": (),
    }


@pytest.mark.slow
def test_what_it_says_is_made_of_the_networks_outputs() -> None:
    variables = MODEL.init(jax.random.key(1))
    outputs = np.asarray(DenseNet(classes=8).apply(variables, IMAGES), np.float64)
    mean, deviation = outputs[:, :4], np.log1p(np.exp(outputs[:, 4:]))
    head = jax.tree.map(np.asarray, variables["params"]["gaussian"]["classifier"])
    for train in (False, True):
        output, _ = MODEL.apply(variables, IMAGES, train, jax.random.key(2))
        np.testing.assert_allclose(output.extra["mean"], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(output.extra["deviation"], deviation, rtol=1e-5)
        np.testing.assert_allclose(
            output.logits, np.asarray(output.features) @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6
        )
        assert np.allclose(output.features, mean, atol=1e-3) is not train


@pytest.mark.slow
def test_draws_have_the_mean_and_the_deviation() -> None:
    variables = MODEL.init(jax.random.key(1))
    draw = jax.vmap(lambda key: MODEL.apply(variables, IMAGES, True, key)[0].features)
    drawn = draw(jax.random.split(jax.random.key(3), 4000))
    said = MODEL.apply(variables, IMAGES, False, jax.random.key(0))[0].extra
    np.testing.assert_allclose(drawn.mean(0), said["mean"], atol=0.06)
    np.testing.assert_allclose(drawn.std(0), said["deviation"], rtol=0.06)


def test_the_representation_has_512_numbers_times_the_width() -> None:
    made = HEADS["gaussian"](lambda outputs: MODELS["digits_cnn"](outputs, 0.25), 10, 0.25)
    shapes = jax.eval_shape(as_model(made, (8, 8, 1)).init, jax.random.key(0))
    assert shapes["params"]["gaussian"]["classifier"]["kernel"].shape == (128, 10)
    assert shapes["params"]["linear_2"]["kernel"].shape == (16, 256)


OF_IMAGES = [name for name, entry in MODELS.items() if not getattr(entry, "sample", ())]
"""The networks that take images, not rows of a table or series."""


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(OF_IMAGES, ("digits_cnn", "vit_b8")))
def test_styles_and_attention_are_found_in_every_convolutional_network(name: str) -> None:
    """Attention doubles what follows the last map; the style is that of the first stage's channels."""
    network, side = shallow(name), SMALLEST.get(name, 16)

    def headed(head: str) -> tuple[dict[str, Any], Any]:
        model = as_model(HEADS[head](lambda outputs: network(outputs, 1 / 16), 3, 1 / 16), (side, side, 3))
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        images = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)
        output, _ = jax.eval_shape(lambda v, x: model.apply(v, x, False, jax.random.key(0)), shapes, images)
        return {path: leaf.shape for path, leaf in flatten(shapes).items()}, output

    (plain, _), (styled, output), (attentive, _) = (headed(head) for head in ("linear", "styled", "highlighted"))
    assert styled == plain
    if isinstance(network(3), ViT):
        assert attentive == plain
        assert not output.extra
        return
    assert output.extra["style_mean"].shape == output.extra["style_deviation"].shape
    differ = {path for path, shape in plain.items() if attentive[path] != shape}
    (kernel,) = differ
    assert attentive[kernel] == (2 * plain[kernel][0], plain[kernel][1])
    assert set(attentive) - set(plain) == {
        f"params/highlighter/{layer}/{kind}" for layer in ("query", "key") for kind in ("kernel", "bias")
    }


@pytest.mark.slow
def test_an_adapter_gives_the_last_layer_directions() -> None:
    model = as_model(HEADS["adapter"](lambda outputs: DenseNet(classes=outputs), CLASSES, 1.0), IMAGE)
    variables = model.init(jax.random.key(1))
    output, _ = model.apply(variables, IMAGES, False, jax.random.key(0))
    params = jax.tree.map(np.asarray, variables["params"])
    features = np.maximum(IMAGES.reshape(2, -1) @ params["linear_1"]["kernel"] + params["linear_1"]["bias"][None], 0)
    inner, outer = params["adapter"]["inner"], params["adapter"]["outer"]
    raw = np.tanh(features @ inner["kernel"] + inner["bias"][None]) @ outer["kernel"] + outer["bias"][None]
    adapted = np.asarray(features * np.exp(raw) / np.exp(raw).sum(1, keepdims=True))
    wanted = adapted / np.linalg.norm(adapted, axis=1, keepdims=True)
    np.testing.assert_allclose(output.features, wanted, rtol=1e-4, atol=1e-6)


def test_simsiams_official_head_has_its_layers() -> None:
    """FedGaLA's official code on ResNet-18: 512, 512, 2048, no biases, a last BatchNorm without parameters; 512 inside
    the predictor."""
    made = HEADS["simsiam"](lambda outputs: MODELS["resnet18"](outputs, 1.0), 7, 1.0)
    shapes = flatten(jax.eval_shape(as_model(made, (32, 32, 3)).init, jax.random.key(0)))
    projector = {path: leaf.shape for path, leaf in shapes.items() if "/projector/" in path}
    affine = {f"params/projector/{bn}/{name}": (512,) for bn in ("bn", "middle_bn") for name in ("scale", "bias")}
    affine |= {f"params/projector/predictor_bn/{name}": (512,) for name in ("scale", "bias")}
    sizes = {"bn": 512, "middle_bn": 512, "out_bn": 2048, "predictor_bn": 512}
    kept = {f"batch_stats/projector/{bn}/{name}": (size,) for bn, size in sizes.items() for name in ("mean", "var")}
    assert projector == affine | kept | {
        "params/projector/middle/kernel": (512, 512),
        "params/projector/out/kernel": (512, 2048),
        "params/projector/predictor_in/kernel": (2048, 512),
        "params/projector/predictor_out/kernel": (512, 2048),
        "params/projector/predictor_out/bias": (2048,),
    }
    assert [leaf.shape for path, leaf in shapes.items() if leaf.shape == (512, 512) and "projector" not in path]


@pytest.mark.slow
def test_simsiams_official_head_by_hand() -> None:
    model = as_model(HEADS["simsiam"](DenseNet, CLASSES, 1 / 64), IMAGE)
    variables, images = model.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (16, *IMAGE))
    output, _ = model.apply(variables, images, True, jax.random.key(2))
    own = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"]["projector"])

    def bn(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)

    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    last = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"]["linear_2"])
    hidden = np.asarray(output.features, np.float64) @ last["kernel"] + last["bias"]
    z = bn(relu(bn(relu(bn(hidden)) @ own["middle"]["kernel"])) @ own["out"]["kernel"])
    p = relu(bn(z @ own["predictor_in"]["kernel"])) @ own["predictor_out"]["kernel"] + own["predictor_out"]["bias"]
    np.testing.assert_allclose(output.logits, z, atol=2e-3)
    np.testing.assert_allclose(output.extra["prediction"], p, atol=2e-3)


@pytest.mark.slow
def test_mocos_official_head_is_one_linear_layer() -> None:
    made = as_model(HEADS["moco"](lambda outputs: MODELS["resnet18"](outputs, 1.0), 7, 1.0), (32, 32, 3))
    shapes = flatten(jax.eval_shape(made.init, jax.random.key(0)))
    assert not [path for path in shapes if "projector" in path]
    assert shapes[last_layer(made)].shape == (512, 2048)
    assert projection_size(made) == 2048
    two_layers = as_model(HEADS["prediction"](lambda outputs: MODELS["resnet18"](outputs, 1.0), 7, 1.0), (32, 32, 3))
    assert projection_size(two_layers) == 2048
