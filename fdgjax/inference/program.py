"""A classifier as a StableHLO program, its variables inside, that JAX runs without this package."""

import jax
import jax.numpy as jnp
from jax import export

from fdgjax.inference.classifier import Classifier, probabilities_of

PLATFORMS = ("cpu", "cuda", "tpu")


def as_program(classifier: Classifier) -> bytes:
    """The serialised program: images uint8 `[batch, H, W, channels]`, or stored samples of other data, float32
    `[batch, ...]`, -> probabilities float32 `[batch, classes]`, or predicted numbers `[batch, 1]` in the label's unit.

    The batch may be of any size: the program is compiled for one sample and loops over the batch. It includes the
    encoding of a table's columns: numbers as they are in the table, NaN where one is missing, and for a category its
    index among the column's categories, -1 for another one.
    """
    of_batch = probabilities_of(classifier)

    def of_samples(samples: jax.Array) -> jax.Array:
        return jax.lax.map(lambda sample: of_batch(sample[None])[0], samples)

    (batch,) = export.symbolic_shape("batch")
    stored = jnp.uint8 if classifier.images else jnp.float32
    samples = jax.ShapeDtypeStruct((batch, *classifier.sample_shape), stored)
    return bytes(export.export(jax.jit(of_samples), platforms=PLATFORMS)(samples).serialize())


def read_program(content: bytes) -> export.Exported:
    """What `as_program` serialised; its `call` is the function of samples -> probabilities.

    Raises:
      ValueError: this is no such program.
    """
    try:
        return export.deserialize(bytearray(content))
    except Exception as error:  # flatbuffers documents no list of errors for damaged files
        raise ValueError(f"cannot be read as a program ({type(error).__name__})") from error
