"""Networks that compile in a moment, on images of a few pixels."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax

from fdgjax.contract import Model
from fdgjax.methods import METHODS
from fdgjax.models import HEADS, UNITS, Unit
from fdgjax.models.client_model import as_model
from fdgjax.models.stages import Passage, flattened
from fdgjax.models.units import no_activation
from fdgjax.nn import BatchStatistics

CLASSES = 3
IMAGE = (4, 4, 1)
FEATURES, MANY_FEATURES = 4, 16
"""What a toy network's last layer reads; many for what compares directions of features: few are often all dead."""


class DenseNet(nn.Module):
    """A unit and a linear layer; the unit sees an image of `pixels` with all other numbers as its channels."""

    classes: int = CLASSES
    features: int = FEATURES
    dropout: float = 0.0
    unit: Unit = UNITS["plain"]
    pixels: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = self.unit(_linear, self.features, name="linear_1")(x.reshape(len(x), *self.pixels, -1), train=train)
        x = flattened(Passage("map")(x))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        x = Passage("features")(x)
        self.sow("intermediates", "features", x)
        return _linear(self.classes, "linear_2")(x)


class SilentNet(nn.Module):
    """A linear layer that tells nobody its input."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        return _linear(CLASSES, "linear_1")(x.reshape(len(x), -1))


class NormNet(nn.Module):
    """A unit, BatchNorm, a linear layer; the unit sees an image of `pixels`."""

    classes: int = CLASSES
    features: int = FEATURES
    unit: Unit = UNITS["plain"]
    pixels: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = self.unit(_linear, self.features, activation=no_activation, name="linear_1")(
            x.reshape(len(x), *self.pixels, -1), train=train
        )
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8, name="norm")(x)
        x = Passage("features")(flattened(Passage("map")(nn.relu(x))))
        self.sow("intermediates", "features", x)
        return _linear(self.classes, "linear_2")(x)


def _linear(features: int, name: str | None = None) -> nn.Dense:
    # A bias that is not zero, so that no parameter starts at a special point.
    return nn.Dense(features, bias_init=nn.initializers.normal(0.3), name=name)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "dense": DenseNet,
    "wide": functools.partial(DenseNet, features=MANY_FEATURES),
    "dropout": functools.partial(DenseNet, dropout=0.5),
    "norm": NormNet,
}


def tiny_network(name: str, method: str, unit: str = "plain") -> tuple[nn.Module, tuple[int, ...]]:
    """One of `MODELS`, of the units (else `unit`) and with the head that the method is made for, and the shape of its
    images."""
    unit, head = METHODS[method].unit or unit, METHODS[method].head or "linear"
    # Only images are augmented, or normalised each by itself.
    pixels = (2, 2) if unit in ("augmented", "assembled") or head in ("styled", "highlighted") else ()
    wide = {"features": MANY_FEATURES} if METHODS[method].unlabelled or method in ("fedccrl", "moon") else {}
    network = functools.partial(MODELS[name], unit=UNITS[unit], pixels=pixels, **wide)
    return HEADS[head](network, CLASSES, 1 / 128), IMAGE


def tiny_model(
    name: str = "dense", method: str = "fedavg", unit: str = "plain", statistics: BatchStatistics | None = None
) -> Model:
    """A `tiny_network` for the toy federation's images."""
    return as_model(*tiny_network(name, method, unit), statistics=statistics)


def frozen_model(method: str = "fedavg") -> Model:
    """A `tiny_model` whose BatchNorm keeps its statistics in training."""
    return tiny_model("dense", method, "norm", BatchStatistics(frozen=lambda path: True))
