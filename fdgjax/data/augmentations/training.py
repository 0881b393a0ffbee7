"""Augmentations of labelled training samples, by name (`config.data.augmentation`).

`noise` and `mask` are for rows of tables and for series. The others are random views of images stored at
`data.image_size` pixels; those that crop return the `data.crop_size` pixels that the network sees. All are drawn anew
for every sample, round and epoch. What is evaluated is never augmented.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.data.augmentations.augmix import AUGMIX, OPERATIONS, Choice, Magnitudes, operate, random_signs
from fdgjax.data.augmentations.corruption import add_noise, mask
from fdgjax.data.augmentations.simclr import random_flip, random_resized_crop, simclr_view, to_range, to_unit
from fdgjax.data.augmentations.view import View, of_images
from fdgjax.data.augmentations.weak_strong import random_crop, unchanged_images
from fdgjax.utils.registry import Registry
from fdgjax.utils.words import words_of

STRENGTHS = 30
"""The largest strength of an operation of RandAugment and TrivialAugment; strength s is the fraction s / 30 of the full
magnitude."""

RANDAUGMENT = AUGMIX._replace(shift=150 / 331, most_bits=8, corner=True)
"""Full magnitudes of RandAugment, as in torchvision."""

WIDE = Magnitudes(shear=0.99, shift=1.0, turn=3 * jnp.pi / 4, jitter=0.99, most_bits=8, fewer_bits=6)
"""Full magnitudes of TrivialAugment (wide), as in torchvision, except that torchvision shifts by up to 32 pixels and
this by up to the whole side: the same for 32x32 images."""


def cropped_and_flipped(size: int) -> View:
    """A random crop of `size` pixels a side, of the image padded by an eighth if it is no larger, and a flip (He et
    al., "Deep residual learning for image recognition", 2016, section 4.2, for small images; padded by reflection)."""
    return composed([partial(random_crop, size=size), random_flip])


def inception(size: int) -> View:
    """A random part of .08 to 1 of the area resized to `size` pixels, and a flip (Szegedy et al., "Going deeper with
    convolutions", 2015, section 6; the usual augmentation for training on ImageNet)."""
    return composed([partial(random_resized_crop, smallest=0.08, size=size), random_flip])


def domainbed(size: int) -> View:
    """A random part of .7 to 1 of the area resized to `size` pixels, a flip, brightness, contrast, saturation and hue
    changed by up to .3, and grey with probability .1 (Gulrajani and Lopez-Paz, "In search of lost domain
    generalization", 2021, official code, `domainbed/datasets.py`)."""
    return partial(
        simclr_view,
        smallest=0.7,
        jitter=(0.3, 0.3, 0.3, 0.3),
        jitter_probability=1.0,
        grey_probability=0.1,
        size=size,
    )


def randaugment(key: jax.Array, images: jax.Array, *, number: int = 2, strength: int = 9) -> jax.Array:
    """`number` random operations of a fixed strength, one after the other (Cubuk et al., "RandAugment: Practical
    automated data augmentation with a reduced search space", 2020); without equalisation and sharpness."""

    def step(x: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        level = jnp.full(len(x), strength / STRENGTHS)
        return operate(x, draw_operation(key, level), RANDAUGMENT), None

    return to_range(jax.lax.scan(step, to_unit(images), jax.random.split(key, number))[0])


def trivial(key: jax.Array, images: jax.Array) -> jax.Array:
    """One random operation of random strength (Müller and Hutter, "TrivialAugment: Tuning-free yet state-of-the-art
    data augmentation", 2021); without equalisation and sharpness."""
    level_key, key = jax.random.split(key)
    level = jax.random.randint(level_key, (len(images),), 0, STRENGTHS + 1) / STRENGTHS
    return to_range(operate(to_unit(images), draw_operation(key, level), WIDE))


def draw_operation(key: jax.Array, level: jax.Array) -> Choice:
    """For each image one of `OPERATIONS` or none, equally likely, at a level `[batch]`, with a random sign."""
    which, sign = jax.random.split(key)
    operation = jax.random.randint(which, level.shape, 0, len(OPERATIONS) + 1)
    return Choice(operation, level.astype(jnp.float32), random_signs(sign, len(level)))


def composed(views: Sequence[View]) -> View:
    """The composition of the views, first to last, each with its own key."""

    def view(key: jax.Array, images: jax.Array) -> jax.Array:
        for one, own in zip(views, jax.random.split(key, len(views)), strict=True):
            images = one(own, images)
        return images

    return view


class ImageAugmentation(NamedTuple):
    """make: the view for the side in pixels of the network's images. colours: whether it changes these, which are then
    numbers in [-1, 1]."""

    make: Callable[[int], View]
    colours: bool = False


IMAGE_AUGMENTATIONS: Mapping[str, ImageAugmentation] = {
    "flip": ImageAugmentation(lambda size: random_flip),
    "crop_flip": ImageAugmentation(cropped_and_flipped),
    "inception": ImageAugmentation(inception),
    "domainbed": ImageAugmentation(domainbed, colours=True),
    "randaugment": ImageAugmentation(lambda size: randaugment, colours=True),
    "trivial": ImageAugmentation(lambda size: trivial, colours=True),
}
"""Those of images alone."""


def for_images(name: str, make: Callable[[int], View]) -> Callable[[int], View]:
    """The entry, whose view refuses other inputs than images."""
    what = f"config.data.augmentation={name}"
    return lambda size: of_images(what, make(size), "noise, mask or none for rows of tables and series")


AUGMENTATIONS: Registry[Callable[[int], View]] = Registry(
    "augmentation",
    {
        "none": lambda size: unchanged_images,
        **{name: for_images(name, one.make) for name, one in IMAGE_AUGMENTATIONS.items()},
        "noise": lambda size: add_noise,
        "mask": lambda size: mask,
    },
)
"""Augmentations by name: functions from the side in pixels of the network's images (0: that of the stored images) to a
view."""


def augmentation(names: str, size: int = 0) -> View | None:
    """The composition of a comma-separated list of `AUGMENTATIONS`, first to last; None if it changes nothing."""
    views = [AUGMENTATIONS[name](size) for name in words_of(names) if name != "none"]
    return composed(views) if views else None
