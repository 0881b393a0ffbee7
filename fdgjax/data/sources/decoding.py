"""One encoded image as an array, for whatever reads images."""

import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

CONTENTS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")  # whatever its suffix; Pillow's other decoders are off


def decode_image(encoded: bytes, size: int, channels: int) -> np.ndarray:
    """An encoded image as uint8 `[size, size, channels]`, grey (1) or RGB (3); of several frames the first.

    Any aspect ratio is resized to a square, by bilinear interpolation with antialiasing where the size
    differs.

    Raises:
      ValueError: an image too large to decode, known from its header; or pixels that are not 8 or 16 bits.
    """
    from PIL import Image

    with Image.open(io.BytesIO(encoded), formats=CONTENTS) as opened:
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and opened.width * opened.height > most:
            raise ValueError(f"{opened.width:,} x {opened.height:,} pixels; at most {most:,} are decoded")
        image = _eight_bits(opened).convert("RGB" if channels == 3 else "L")
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(size, size, channels)


def _eight_bits(image: "Image") -> "Image":
    """The image, one of 16 bits of grey with its upper 8: `convert` would clip it at 255."""
    from PIL.Image import fromarray

    if not image.mode.startswith(("I", "F")):
        return image
    grey = np.asarray(image)
    if image.mode == "F" or grey.min() < 0 or grey.max() > 65535:
        raise ValueError("grey of 32 bits; expected 8 or 16")
    return fromarray((grey >> 8).astype(np.uint8))
