"""Scalings of images: how a pixel's byte becomes the number that a network sees.

Methods and random views see pixels x = byte / 127.5 - 1, in [-1, 1], whatever the network expects; the model applies
its scaling last, `factor * x + shift` for each channel. So every path from bytes to a network has the same scaling, and
views do not depend on it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


class Scaling(NamedTuple):
    """`factor * x + shift` of pixels in [-1, 1]: a number for each channel, or one for any number of channels."""

    factor: tuple[float, ...]
    shift: tuple[float, ...]


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's red, green and blue in [0, 1]."""

SCALINGS: Mapping[str, Scaling] = {
    "signed": Scaling((1.0,), (0.0,)),
    "unit": Scaling((0.5,), (0.5,)),
    "imagenet": Scaling(
        tuple(0.5 / deviation for deviation in DEVIATION),
        tuple((0.5 - mean) / deviation for mean, deviation in zip(MEAN, DEVIATION, strict=True)),
    ),
    "efficientnet_lite": Scaling((127.5 / 128,), (0.5 / 128,)),
}
"""Scalings by name: `byte / 127.5 - 1`; `byte / 255`; `(byte / 255 - mean) / deviation`; `(byte - 127) / 128`."""


def scaling_function(name: str, channels: int) -> Callable[[jax.Array], jax.Array]:
    """The function of images `[..., channels]` in [-1, 1] for an entry of `SCALINGS`.

    Raises:
      UserError: no such scaling, or one for another number of channels.
    """
    factor, shift = lookup("data.scaling", name, SCALINGS)
    if len(factor) not in (1, channels):
        raise UserError(
            f"config.data.scaling got '{name}', which is for images with {len(factor)} channels, but these have "
            f"{channels}; expected signed or unit"
        )
    if SCALINGS[name] == SCALINGS["signed"]:
        return lambda images: images

    def apply(images: jax.Array) -> jax.Array:
        shape = (1,) * (images.ndim - 1) + (-1,)
        by, plus = (jnp.asarray(values, images.dtype).reshape(shape) for values in (factor, shift))
        return by * images + plus

    return apply
