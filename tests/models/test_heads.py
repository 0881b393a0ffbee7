"""The Gaussian head: a network keeps its paths, z is drawn in training and is its mean otherwise."""

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.models import HEADS, MODELS, GaussianHead
from fdgjax.models.client_model import as_model
from fdgjax.variables import flatten
from tests.toys import CLASSES, IMAGE, DenseNet

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


def test_what_it_says_is_made_of_the_networks_outputs() -> None:
    variables = MODEL.init(jax.random.key(1))
    outputs = np.asarray(DenseNet(classes=8).apply(variables, IMAGES), np.float64)
    mean, deviation = outputs[:, :4], np.log1p(np.exp(outputs[:, 4:]))
    head = jax.tree.map(np.asarray, variables["params"]["gaussian"]["classifier"])
    for train in (False, True):
        output, _ = MODEL.apply(variables, IMAGES, train, jax.random.key(2))
        np.testing.assert_allclose(output.more["mean"], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(output.more["deviation"], deviation, rtol=1e-5)
        np.testing.assert_allclose(
            output.logits, np.asarray(output.features) @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6
        )
        assert np.allclose(output.features, mean, atol=1e-3) is not train


def test_draws_have_the_mean_and_the_deviation() -> None:
    variables = MODEL.init(jax.random.key(1))
    draw = jax.vmap(lambda key: MODEL.apply(variables, IMAGES, True, key)[0].features)
    drawn = draw(jax.random.split(jax.random.key(3), 4000))
    said = MODEL.apply(variables, IMAGES, False, jax.random.key(0))[0].more
    np.testing.assert_allclose(drawn.mean(0), said["mean"], atol=0.06)
    np.testing.assert_allclose(drawn.std(0), said["deviation"], rtol=0.06)


def test_the_representation_has_512_numbers_times_the_width() -> None:
    made = HEADS["gaussian"](lambda outputs: MODELS["digits_cnn"](outputs, 0.25), 10, 0.25)
    shapes = jax.eval_shape(as_model(made, (8, 8, 1)).init, jax.random.key(0))
    assert shapes["params"]["gaussian"]["classifier"]["kernel"].shape == (128, 10)
    assert shapes["params"]["linear_2"]["kernel"].shape == (16, 256)
