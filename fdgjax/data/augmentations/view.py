"""The type of a view, and views that depend on the shape of the samples."""

from collections.abc import Callable

import jax

from fdgjax.utils.errors import UserError

View = Callable[[jax.Array, jax.Array], jax.Array]
"""A random transformation of a batch: `(key, inputs [batch, ...]) -> inputs`. Images are `[batch, H, W, channels]`,
rows of a table `[batch, columns]`, series `[batch, time, channels]`."""

IMAGE_AXES = 4
"""Axes of a batch of images; one of rows of a table or of series has fewer."""


def check_images(what: str, inputs: jax.Array, expected: str) -> None:
    """Raises a `UserError` unless the inputs are images; only their shape is read, so that tracing raises it.

    Args:
      what: what is made for images. inputs: `[batch, ...]`. expected: what to take instead, in words.
    """
    if inputs.ndim != IMAGE_AXES:
        raise UserError(
            f"{what} is made for images [H, W, channels] and got samples of shape {list(inputs.shape[1:])}; "
            f"expected {expected}"
        )


def of_images(what: str, view: View, expected: str) -> View:
    """The view, which refuses other inputs than images; see `check_images`."""

    def checked(key: jax.Array, inputs: jax.Array) -> jax.Array:
        check_images(what, inputs, expected)
        return view(key, inputs)

    return checked


def by_shape(images: View, others: View) -> View:
    """The view `images` of images, the view `others` of rows of a table and of series."""

    def chosen(key: jax.Array, inputs: jax.Array) -> jax.Array:
        return (images if inputs.ndim == IMAGE_AXES else others)(key, inputs)

    return chosen
