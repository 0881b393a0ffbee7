"""Reads image files into the format of a run's data set."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fdgjax.data.sources.decoding import decode_image
from fdgjax.data.sources.source import read_bytes
from fdgjax.inference.classifier import Classifier, in_batches, probabilities_of
from fdgjax.utils.errors import UserError


def predict_files(classifier: Classifier, files: Sequence[Path]) -> np.ndarray:
    """Probabilities `[files, classes]` of image files; raises like `read_images`."""
    return in_batches(probabilities_of(classifier), read_images(files, classifier.image_shape))


def read_images(files: Sequence[Path], image_shape: tuple[int, ...]) -> np.ndarray:
    """Images uint8 `[files, H, W, channels]`, decoded and resized by the function that fills the data cache.

    Raises:
      UserError: a file that cannot be read or decoded, or a run whose images are not square.
    """
    size, width, channels = image_shape
    if size != width:
        raise UserError(
            f"the run was trained on arrays of {size}x{width}, and files become squares; expected arrays of that size: "
            "fdgjax.open_run(RUN).predict(images)"
        )
    found = np.empty((len(files), *image_shape), np.uint8)
    for place, file in enumerate(files):
        encoded = read_bytes(file)
        try:
            found[place] = decode_image(encoded, size, channels)
        except Exception as error:  # Pillow documents no complete list of errors for damaged files
            raise UserError(
                f"cannot decode the image {file} ({type(error).__name__}); expected JPEG, PNG, WEBP, BMP, GIF or TIFF; "
                "repair the file or leave it out"
            ) from error
    return found
