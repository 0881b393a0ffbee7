"""A classifier as a StableHLO program, its variables inside, that JAX runs without this package."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export

from fdgjax.inference.classifier import Classifier, probabilities_of

PLATFORMS = ("cpu", "cuda", "tpu")


def as_program(classifier: Classifier) -> bytes:
    """The serialised program: images uint8 `[batch, H, W, channels]` -> probabilities float32 `[batch, classes]`.

    The batch may be of any size: the program is compiled for one image and loops over the batch.
    """
    of_batch = probabilities_of(classifier)

    def of_images(images: jax.Array) -> jax.Array:
        return jax.lax.map(lambda image: of_batch(image[None])[0], images)

    (batch,) = export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, *classifier.image_shape), jnp.uint8)
    return bytes(export.export(jax.jit(of_images), platforms=PLATFORMS)(images).serialize())


def write_program(classifier: Classifier, file: Path) -> None:
    """Writes the program."""
    file.write_bytes(as_program(classifier))


def read_program(file: Path) -> Callable[[jax.Array], jax.Array]:
    """The function of images -> probabilities in a file that `write_program` wrote.

    Raises:
      ValueError: the file holds no such program.
    """
    try:
        loaded = export.deserialize(bytearray(file.read_bytes()))
    except Exception as error:  # flatbuffers documents no list of errors for damaged files
        raise ValueError(f"{file.name} cannot be read as a program ({type(error).__name__})") from error
    return loaded.call
