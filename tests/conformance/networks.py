"""What our networks and PyTorch's are given: variables, images and labels; and what is kept of their results."""

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from fdgjax.contract import Model
from fdgjax.models import AlexNet, DigitsCNN, DSEUnit, InceptionCNN, ResNet
from fdgjax.models.client_model import as_model
from fdgjax.models.densenet import DenseNet
from fdgjax.models.efficientnet import EfficientNetLite
from fdgjax.models.mnist import DirtCNN, MnistCNN

CLASSES = 5
BATCH = 8
DIRECTIONS = 4


class Network(NamedTuple):
    """A narrow network of ours, and the side of its images."""

    module: nn.Module
    side: int


NETWORKS: Mapping[str, Network] = {
    "inception": Network(InceptionCNN(CLASSES, dropout=0.0), 8),
    "digits_cnn": Network(DigitsCNN(CLASSES), 8),
    "alexnet": Network(AlexNet(CLASSES, 1 / 8), 67),
    "dse_alexnet": Network(AlexNet(CLASSES, 1 / 8, unit=DSEUnit), 67),
    "resnet18": Network(ResNet(CLASSES, width=1 / 8), 12),
    "mnist_cnn": Network(MnistCNN(CLASSES, width=1 / 8), 9),
    "dirt_cnn": Network(DirtCNN(CLASSES, width=1 / 8), 19),
    "densenet": Network(DenseNet(CLASSES, width=1 / 8, depths=(1, 2, 1)), 33),
    "efficientnet_lite0": Network(EfficientNetLite(CLASSES, width=1 / 8), 37),
}
KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}


class Given(NamedTuple):
    """A network's model with what it is given, in float64: variables by our paths, images channels last."""

    model: Model
    variables: Any
    images: np.ndarray
    labels: np.ndarray


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """BatchNorm of eight numbers, ReLU and max-pools turn rounding into large differences of gradients.

    Flax asks for the wider of float64 and float32, which strict promotion refuses to name.
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


def given(name: str) -> Given:
    """The same numbers at every call; to be called within `float64`."""
    network, rng = NETWORKS[name], np.random.default_rng(1)
    model = as_model(network.module, (network.side, network.side, 3))
    variables = drawn(jax.eval_shape(model.init, jax.random.key(0)))
    images = rng.normal(size=(BATCH, network.side, network.side, 3))
    return Given(model, variables, images, rng.integers(0, CLASSES, BATCH))


def drawn(shapes: Any) -> Any:
    """Variables none of which is special: kernels large enough to be seen, variances and scales around 1."""
    rng = np.random.default_rng(0)

    def draw(path: Any, leaf: Any) -> jax.Array:
        kind, fan_in = path[-1].key, np.prod(leaf.shape[:-1])
        spread = fan_in**-0.5 if kind == "kernel" else 0.2
        return jnp.asarray(rng.uniform(-spread, spread, leaf.shape) + (kind in ("scale", "var")))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def torch_state(variables: Any) -> dict[str, np.ndarray]:
    """Our variables by PyTorch's names and in its layout; gradients and statistics likewise."""
    leaves = [item for tree in variables.values() for item in traverse_util.flatten_dict(tree).items()]
    order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    return {
        ".".join((*path[:-1], KINDS[path[-1]])): np.asarray(leaf).transpose(order[leaf.ndim]) for path, leaf in leaves
    }


def kept(
    evaluated: np.ndarray, trained: np.ndarray, gradients: Mapping[str, np.ndarray], means: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Logits in evaluation and in training; gradients and the means after training by their names, each as its products
    with a few random directions, which no other array of the size has."""
    results = {"evaluated": evaluated, "trained": trained}
    results |= {f"gradients/{name}": along_directions(name, value) for name, value in gradients.items()}
    return results | {f"means/{name}": along_directions(name, value) for name, value in means.items()}


def along_directions(name: str, value: np.ndarray) -> np.ndarray:
    """Products with unit-sized random directions that follow from the name, `[DIRECTIONS]`."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.normal(size=(DIRECTIONS, value.size)) @ np.ravel(value) / np.sqrt(value.size)


MNIST = MnistCNN(4, width=1 / 4)


def mnist_given() -> tuple[Any, np.ndarray]:
    """Variables of `MNIST` and images for it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (3, 11, 12, 2)).astype(np.float32)
    shapes = jax.eval_shape(MNIST.init, jax.random.key(0), jnp.asarray(x))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), shapes), x


PARTIAL = 3
"""The samples of a last partial batch of BatchNorm's."""


def batch_norm_given() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """BatchNorm's `scale`, `bias`, `mean` and `var`, and a whole batch for it."""
    rng = np.random.default_rng(2)
    variables = {name: rng.uniform(0.5, 1.5, 5) for name in ("scale", "bias", "mean", "var")}
    return variables, rng.normal(0.5, 2.0, (BATCH, 3, 2, 5))
