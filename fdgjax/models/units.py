"""Units of backbones: a layer, BatchNorm and an activation. The kind of unit is an argument of the backbone, so that
one network serves as the plain one and as FDSE's.

A factory, an entry of `UNITS`, makes a unit by

    unit(layer, features, activation=..., name=...)

where `layer(features=..., name=...)` makes a convolution or a linear layer whose other arguments are fixed. The unit is
called as `unit(x, train=...)`, `[batch, ..., in]` -> `[batch, ..., features]`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.models.assembled_norm import AssembledNorm
from fdgjax.models.feature_augmentation import FeatureAugmentation
from fdgjax.nn import BatchNorm, Conv
from fdgjax.nn.windows import Size, pair
from fdgjax.utils.errors import UserError

Layer = Callable[..., nn.Module]
Unit = Callable[..., Callable[..., jax.Array]]
Activation = Callable[[jax.Array], jax.Array]

batch_norm = partial(BatchNorm, momentum=0.9, epsilon=1e-5)
"""BatchNorm with PyTorch's defaults (its momentum is 1 minus Flax's); statistics in the collection `batch_stats`."""


def norm(x: jax.Array, train: bool, name: str, affine: bool = True) -> jax.Array:
    """`batch_norm` of one array, as a submodule of that name."""
    (y,) = batch_norm(use_running_average=not train, affine=affine, name=name)([x])
    return y


def no_activation(x: jax.Array) -> jax.Array:
    """No activation."""
    return x


def widen(features: int, width: float) -> int:
    """A number of channels times a backbone's `width`, at least 1."""
    return max(1, round(width * features))


def plain_unit(
    layer: Layer, features: int, activation: Activation = nn.relu, name: str | None = None
) -> Callable[..., jax.Array]:
    """activation(layer(x)), without BatchNorm. The layer itself has the unit's name: nothing is nested."""
    made = layer(features=features, name=name)

    def call(x: jax.Array, train: bool = False) -> jax.Array:
        del train
        return activation(made(x))

    return call


class NormUnit(nn.Module):
    """activation(BN(layer(x))).

    Variables: `layer` and `bn`.

    Attributes:
      layer: makes the layer from `features` and `name`.
      features: output channels.
      activation: applied last.
      batch_norm: makes the BatchNorm.
    """

    layer: Layer
    features: int
    activation: Activation = nn.relu
    batch_norm: Callable[..., BatchNorm] = batch_norm

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ..., in]` -> `[batch, ..., features]`; batch statistics are used and kept when `train`."""
        y = self.layer(features=self.features, name="layer")(x)
        (y,) = self.batch_norm(use_running_average=not train, name="bn")([y])
        return self.activation(y)


class DSEUnit(nn.Module):
    """FDSE's block: a domain-agnostic feature extractor with few channels, and a domain-specific skew eraser that
    computes each of the other channels from one of them.

        u = inner_activation(BN_dse(dfe(x)))           ceil(T / G) channels, T = features, G = ratio
        y = activation(BN_dfe(concat(u, dse(u))))      dse: depthwise convolution to the other channels

    FDSE, equations 2 and 3 and Table A7 (after GhostNet: Han et al., 2020). Variables: `dfe` (the layer), `bn_dse`,
    `dse`, `bn_dfe`, and with `bias` also `bias`. If G does not divide T, `dse` makes whole groups of channels and the
    last ones are dropped, as in GhostNet.

    Attributes:
      layer: makes the layer from `features` and `name`.
      features: T.
      activation: applied last.
      inner_activation: between BN_dse and the depthwise convolution: ReLU in the paper, none in the official code.
      ratio: G, at least 2.
      window: side of the depthwise kernel, or its height and width; linear layers (inputs `[batch, in]` or `[batch,
        tokens, in]`) always have 1.
      bias: a bias of T channels before BN_dfe, as in the official code. BN_dfe subtracts it again, so that it affects
        only the running mean.
      init_name: entry of `fdgjax.nn.INITIALISATIONS`, for the depthwise convolution.
    """

    layer: Layer
    features: int
    activation: Activation = nn.relu
    inner_activation: Activation = nn.relu
    ratio: int = 2
    window: Size = 3
    bias: bool = False
    init_name: str = "torch"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ..., in]` -> `[batch, ..., features]`; batch statistics are used and kept when `train`.

        Raises:
          UserError: `ratio` below 2.
        """
        if self.ratio < 2:
            raise UserError(f"DSEUnit got ratio {self.ratio}; expected at least 2; without a skew eraser use NormUnit")
        core = self.layer(features=-(-self.features // self.ratio), name="dfe")(x)
        core = self.inner_activation(norm(core, train, "bn_dse"))
        left = self.features - core.shape[-1]
        parts = [core, self._erase(core)[..., :left]] if left else [core]
        if self.bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            split = jnp.split(bias.reshape((1,) * (x.ndim - 1) + (-1,)), [core.shape[-1]] * bool(left), axis=-1)
            parts = [part + own for part, own in zip(parts, split, strict=True)]
        normalised = batch_norm(use_running_average=not train, name="bn_dfe")(parts)
        return jnp.concatenate([self.activation(part) for part in normalised], axis=-1)

    def _erase(self, core: jax.Array) -> jax.Array:
        """`[batch, ..., C]` -> `[batch, ..., at least T - C]`; vectors and tokens are treated as columns of pixels."""
        channels = core.shape[-1]
        more = channels * -(-(self.features - channels) // channels)
        image = core if core.ndim == 4 else core.reshape(len(core), -1, 1, channels)
        height, width = pair(self.window) if core.ndim == 4 else (1, 1)
        depthwise = partial(Conv, feature_group_count=channels, use_bias=False, init_name=self.init_name)
        erased: jax.Array = depthwise(more, (height, width), padding=(height // 2, width // 2), name="dse")(image)
        return erased.reshape(*core.shape[:-1], more)


official_dse_unit = partial(DSEUnit, inner_activation=no_activation, bias=True)
"""The block of FDSE's official code."""


def along_time(unit: Unit) -> Unit:
    """The factory for series, which are images of width 1: its depthwise kernels, if it has any, are `[3, 1]`, without
    the columns that would only ever see padding."""
    return partial(unit, window=(3, 1)) if "window" in inspect.signature(unit).parameters else unit


class AugmentedUnit(nn.Module):
    """FeatureAugmentation(activation(BN(layer(x)))), FedFA's unit.

    Variables: those of `NormUnit`, `layer` and `bn`, and after a convolution `ffa`. AlexNet's activations include its
    max-pools, so that its features are augmented after them, as in the official code.

    Attributes:
      layer: makes the layer from `features` and `name`.
      features: output channels.
      activation: applied before the augmentation.
      probability: of augmenting a batch.
    """

    layer: Layer
    features: int
    activation: Activation = nn.relu
    probability: float = 0.5

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ..., in]` -> `[batch, ..., features]`."""
        y = self.layer(features=self.features, name="layer")(x)
        y = norm(y, train, "bn")
        y = self.activation(y)
        augmented: jax.Array = FeatureAugmentation(self.probability, name="ffa")(y, train=train)
        return augmented


class AssembledUnit(nn.Module):
    """activation(AssembledNorm(layer(x))), gPerXAN's unit.

    Variables: `layer`, and in `norm` those of `AssembledNorm`.

    Attributes:
      layer: makes the layer from `features` and `name`.
      features: output channels.
      activation: applied last.
    """

    layer: Layer
    features: int
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, ..., in]` -> `[batch, ..., features]`; batch statistics are used and kept when `train`."""
        y = self.layer(features=self.features, name="layer")(x)
        return self.activation(AssembledNorm(use_running_average=not train, name="norm")(y))


UNITS: Mapping[str, Unit] = {
    "plain": plain_unit,
    "norm": NormUnit,
    "dse": DSEUnit,
    "dse_official": official_dse_unit,
    "augmented": AugmentedUnit,
    "assembled": AssembledUnit,
}
"""Kinds of units by name."""
