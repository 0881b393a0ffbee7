"""Image styles, the mean and standard deviation of each channel, and their transfer (MixStyle: Zhou et al., "Domain
generalization with MixStyle", ICLR 2021, here applied to images)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.view import check_images

EPSILON = 1e-6
"""Added to variances."""

TRIES = 16
"""Proposals in Johnk's method; each is accepted with probability at least 0.5 for a <= 1, and 0.99 for a = 0.1."""


class Style(NamedTuple):
    """Statistics of each image and channel over the pixels, `[batch, channels]` each: the mean, and the square root of
    the unbiased variance (0 of a single pixel) plus `EPSILON`."""

    mean: jax.Array
    deviation: jax.Array


def style_of(images: jax.Array) -> Style:
    """The styles of images `[batch, H, W, channels]`.

    Raises:
      UserError: inputs that are no images.
    """
    check_images("a style (FedCCRL)", images.shape, "a method that fits these data, such as fedavg")
    several = images.shape[1] * images.shape[2] > 1
    variance = jnp.var(images, (1, 2), ddof=1) if several else jnp.zeros_like(images[:, 0, 0])
    return Style(jnp.mean(images, (1, 2)), jnp.sqrt(variance + EPSILON))


def in_style(images: jax.Array, other: Style, own_share: jax.Array) -> jax.Array:
    """`sigma' (x - mu) / sigma + mu'` with `mu' = s mu + (1 - s) mu_other` and sigma' likewise, clipped to [-1, 1].

    Args:
      images: x, `[batch, H, W, channels]` in [-1, 1].
      other: the styles to mix in, `[batch, channels]`.
      own_share: s, `[batch]` in [0, 1].
    """
    own, share = style_of(images), own_share[:, None]
    mixed = jax.tree.map(lambda mine, its: share * mine + (1 - share) * its, own, other)
    factor = mixed.deviation / own.deviation
    over = lambda statistic: statistic[:, None, None, :]  # noqa: E731
    return jnp.clip(over(factor) * (images - over(own.mean)) + over(mixed.mean), -1, 1)


def symmetric_beta(key: jax.Array, a: float, count: int) -> jax.Array:
    """Draws of Beta(a, a), a in (0, 1], `[count]`.

    Johnk's method (1964): for uniform U and V, let `X = U^(1/a)` and `Y = V^(1/a)`; the first pair with `X + Y <= 1`
    gives `X / (X + Y)`. It is computed in logarithms, since X underflows. `jax.random.beta`, which uses two gamma
    variables, takes seconds to compile.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    # The batch axis is first, so that a shorter batch gets the first draws of a longer one.
    logs = jnp.log(jax.random.uniform(key, (count, 2, TRIES), minval=tiny)) / a
    first = jnp.argmax(jnp.logaddexp(logs[:, 0], logs[:, 1]) <= 0, axis=1)[:, None, None]
    x, y = jnp.take_along_axis(logs, first, axis=2)[:, :, 0].T
    return jax.nn.sigmoid(x - y)
