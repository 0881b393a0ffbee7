"""The type of a view, and views that depend on the shape of the samples."""

from collections.abc import Callable, Sequence

import jax

from fdgjax.utils.errors import UserError, users_program
from fdgjax.utils.variables import dtype_and_shape

View = Callable[[jax.Array, jax.Array], jax.Array]
"""A random transformation of a batch: `(key, inputs [batch, ...]) -> inputs`. Images are `[batch, H, W, channels]`,
rows of a table `[batch, columns]`, series `[batch, time, channels]`."""

IMAGE_AXES = 4
"""Axes of a batch of images; one of rows of a table or of series has fewer."""


def check_images(what: str, shape: Sequence[int], expected: str) -> None:
    """Raises a `UserError` unless a batch of that shape is one of images, also in tracing.

    Args:
      what: what is made for images. shape: the batch's. expected: what to take instead, in words.
    """
    if len(shape) != IMAGE_AXES:
        raise UserError(
            f"{what} is made for images [H, W, channels] and got samples of shape {list(shape[1:])}; "
            f"expected {expected}"
        )


def of_images(what: str, view: View, expected: str) -> View:
    """The view, which refuses other inputs than images; see `check_images`."""

    def checked(key: jax.Array, inputs: jax.Array) -> jax.Array:
        check_images(what, inputs.shape, expected)
        return view(key, inputs)

    return checked


def same_shape(what: str, view: View) -> View:
    """The view, which must leave the batch's shape and type as they are.

    Raises:
      UserError: it fails, or returns something else; in tracing.
    """

    def checked(key: jax.Array, inputs: jax.Array) -> jax.Array:
        with users_program(what, "a function (key, inputs) -> inputs of JAX's operations"):
            outputs = view(key, inputs)
        made, expected = jax.tree.map(dtype_and_shape, outputs), dtype_and_shape(inputs)
        if made != expected:
            raise UserError(f"{what} made {made} of {expected}; expected the same shape and type")
        return outputs

    return checked


def by_shape(images: View, others: View) -> View:
    """The view `images` of images, the view `others` of rows of a table and of series."""

    def chosen(key: jax.Array, inputs: jax.Array) -> jax.Array:
        return (images if inputs.ndim == IMAGE_AXES else others)(key, inputs)

    return chosen
