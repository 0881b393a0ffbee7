"""AugMix: an image mixed with chains of random operations on it (Hendrycks et al., "AugMix: A simple data processing
method to improve robustness and uncertainty", ICLR 2020), with torchvision's operations and magnitudes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates

from fdgjax.data.augmentations.simclr import adjust_contrast, brightness, saturation, to_range, to_unit

OPERATIONS = (
    *("shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("posterize", "solarize", "autocontrast", "brightness", "contrast", "saturation"),
)
"""torchvision's operations without equalisation and sharpness."""

LEVELS = 9
"""The largest level of an operation; level l is the fraction l / 9 of the full magnitude."""


class Magnitudes(NamedTuple):
    """Full magnitudes of the operations.

    shear: as a slope. shift: as a fraction of the side. turn: in radians. jitter: deviation of a factor from 1.
    most_bits: bits of a byte that posterising keeps at level 0; fewer_bits: how many fewer it keeps at full magnitude.
    corner: whether shears leave the upper left corner where it is, as torchvision's do, instead of the centre.
    """

    shear: float
    shift: float
    turn: float
    jitter: float
    most_bits: int
    fewer_bits: int
    corner: bool = True


AUGMIX = Magnitudes(shear=0.3, shift=1 / 3, turn=jnp.pi / 6, jitter=0.9, most_bits=4, fewer_bits=4, corner=False)
"""Full magnitudes of torchvision's AugMix."""


class Choice(NamedTuple):
    """An operation for each image, `[batch]` each: index in `OPERATIONS`, fraction of the full magnitude, and sign."""

    operation: jax.Array
    level: jax.Array
    sign: jax.Array


def augmix(key: jax.Array, images: jax.Array, *, severity: int = 3, width: int = 3, depth: int = 3) -> jax.Array:
    """`(1 - m) x + m sum_k w_k chain_k(x)`, with w uniform on the simplex and m uniform in [0, 1], for each image.

    A chain is 1 to `depth` random operations of random levels below `severity`, one after the other.

    Args:
      key: random key.
      images: x, `[batch, H, W, channels]` in [-1, 1].
      severity: number of levels to draw from, starting with the weakest (0); at most 10.
      width: number of chains.
      depth: the longest chain.
    """
    chain_key, weight_key, share_key = jax.random.split(key, 3)
    batch, x = len(images), to_unit(images)
    parts = jax.random.exponential(weight_key, (batch, width))
    weights = parts / jnp.sum(parts, axis=1, keepdims=True)
    share = jax.random.uniform(share_key, (batch, 1, 1, 1))
    chains = jax.vmap(lambda k: operation_chain(k, x, severity, depth))(jax.random.split(chain_key, width))
    return to_range((1 - share) * x + share * jnp.einsum("bk,kbhwc->bhwc", weights, chains))


def operation_chain(key: jax.Array, images: jax.Array, severity: int, depth: int) -> jax.Array:
    """1 to `depth` operations on each image in [0, 1]."""
    length_key, key = jax.random.split(key)
    length = jax.random.randint(length_key, (len(images),), 1, depth + 1)

    def step(x: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        changed = operate(x, draw(jax.random.fold_in(key, number), len(x), severity))
        return jnp.where((number < length)[:, None, None, None], changed, x), None

    return jax.lax.scan(step, images, jnp.arange(depth))[0]


def draw(key: jax.Array, batch: int, severity: int) -> Choice:
    """A random operation for each image."""
    which, how, sign = jax.random.split(key, 3)
    level = jax.random.randint(how, (batch,), 0, severity).astype(jnp.float32) / LEVELS
    return Choice(jax.random.randint(which, (batch,), 0, len(OPERATIONS)), level, random_signs(sign, batch))


def random_signs(key: jax.Array, batch: int) -> jax.Array:
    """1 or -1 for each image."""
    return jnp.where(jax.random.bernoulli(key, 0.5, (batch,)), 1.0, -1.0)


def operate(images: jax.Array, choice: Choice, full: Magnitudes = AUGMIX) -> jax.Array:
    """Each image in [0, 1] after its operation; unchanged if the operation's index is not in `OPERATIONS`."""
    is_it = lambda name: choice.operation == OPERATIONS.index(name)  # noqa: E731
    signed = choice.sign * choice.level
    of = lambda name, amount: jnp.where(is_it(name), amount, 0)  # noqa: E731
    x = warp(
        images,
        shear=jnp.stack([of("shear_y", full.shear * signed), of("shear_x", full.shear * signed)], axis=1),
        shift=jnp.stack([of("translate_y", full.shift * signed), of("translate_x", full.shift * signed)], axis=1),
        turn=of("rotate", full.turn * signed),
        corner=full.corner,
    )
    for name, change in (("brightness", brightness), ("contrast", adjust_contrast), ("saturation", saturation)):
        x = change(x, 1 + of(name, full.jitter * signed))
    for name, changed in (
        ("posterize", posterize(x, full.most_bits - jnp.round(full.fewer_bits * choice.level))),
        ("solarize", solarize(x, 1 - choice.level)),
        ("autocontrast", autocontrast(x)),
    ):
        x = jnp.where(is_it(name)[:, None, None, None], changed, x)
    return x


def warp(images: jax.Array, shear: jax.Array, shift: jax.Array, turn: jax.Array, *, corner: bool = False) -> jax.Array:
    """Images sheared, shifted and turned around their centre: bilinear, black beyond the edges.

    Args:
      images: `[batch, H, W, channels]`.
      shear: rows by columns and columns by rows, `[batch, 2]`.
      shift: down and to the right, as shares of the sides, `[batch, 2]`.
      turn: in radians, `[batch]`.
      corner: whether they are sheared around their upper left corner instead.
    """
    height, width = images.shape[1:3]
    centre = (height - 1) / 2, (width - 1) / 2
    down, right = jnp.meshgrid(
        *(jnp.arange(side, dtype=jnp.float32) - middle for side, middle in zip((height, width), centre, strict=True)),
        indexing="ij",
    )

    below, beside = (down + height / 2, right + width / 2) if corner else (down, right)

    def one(image: jax.Array, sheared: jax.Array, moved: jax.Array, angle: jax.Array) -> jax.Array:
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        rows = cos * down - sin * right + sheared[0] * beside - moved[0] * height + centre[0]
        columns = sin * down + cos * right + sheared[1] * below - moved[1] * width + centre[1]
        look = lambda channel: map_coordinates(channel, [rows, columns], order=1, mode="constant")  # noqa: E731
        return jax.vmap(look, in_axes=2, out_axes=2)(image)

    return jax.vmap(one)(images, shear, shift, turn)


def posterize(images: jax.Array, bits: jax.Array) -> jax.Array:
    """Keeps the `bits` `[batch]` highest bits of each pixel's byte; images in [0, 1]."""
    step = (2 ** (8 - bits))[:, None, None, None]
    return jnp.floor(jnp.round(255 * images) / step) * step / 255


def solarize(images: jax.Array, threshold: jax.Array) -> jax.Array:
    """Inverts values at or above a threshold `[batch]`; images in [0, 1]."""
    return jnp.where(images >= threshold[:, None, None, None], 1 - images, images)


def autocontrast(images: jax.Array) -> jax.Array:
    """Each channel stretched to [0, 1]; a constant channel is unchanged."""
    low, high = (f(images, axis=(1, 2), keepdims=True) for f in (jnp.min, jnp.max))
    span = high - low
    return jnp.where(span > 0, (images - low) / jnp.where(span > 0, span, 1), images)
