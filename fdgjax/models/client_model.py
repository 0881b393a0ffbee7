"""The client model: a network of the registry with units and a head, as the two pure functions of the contract."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from fdgjax.contract import Model, Output, Variables
from fdgjax.models import HEADS, MODELS, UNITS
from fdgjax.models.scaling import scaled


def make_network(name: str, classes: int, *, width: float = 1.0, unit: str = "", head: str = "") -> nn.Module:
    """The network called `name` in `MODELS`.

    Args:
      name: an entry of `MODELS`.
      classes: number of classes.
      width: factor on its channels.
      unit: an entry of `UNITS` for its replaceable units; '' for its own.
      head: an entry of `HEADS` that follows it; '' for none.
    """

    def network(outputs: int) -> nn.Module:
        return MODELS[name](outputs, width, UNITS[unit] if unit else None)

    return HEADS[head or "linear"](network, classes, width)


def as_model(module: nn.Module, image_shape: Sequence[int], scaling: str = "signed") -> Model:
    """A Flax module called as `module(images, train=...)` as the two pure functions of the contract.

    Its `features` are the last value sown under that name, and its other sown values are in `more`.

    Args:
      module: the network.
      image_shape: `(H, W, channels)`.
      scaling: the entry of `SCALINGS` for the images that the network sees.

    Raises:
      UserError: a scaling for another number of channels.
    """
    scale = scaled(scaling, image_shape[-1])

    def init(key: jax.Array) -> Variables:
        return dict(module.init(key, jnp.zeros((1, *image_shape), jnp.float32), train=False))

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        mutable = [name for name in variables if name != "params"] if train else []
        logits, changed = module.apply(
            variables, scale(images), train=train, rngs={"dropout": key}, mutable=[*mutable, "intermediates"]
        )
        # Values sown by submodules are left out; of several values of one name the last is nearest to the logits.
        sown = changed.get("intermediates", {}).items()
        outputs = {name: values[-1] for name, values in sown if isinstance(values, tuple)}
        features = outputs.pop("features", jnp.zeros((len(logits), 0), logits.dtype))
        return Output(logits, features, outputs), {name: changed[name] for name in mutable}

    return Model(init, apply)
