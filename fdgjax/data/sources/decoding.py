"""Decoding one image file's bytes into an array."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fdgjax.utils.errors import UserError, printable, reason_of

if TYPE_CHECKING:
    from PIL.Image import Image

CONTENTS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")  # whatever the suffix; Pillow's other decoders are disabled

DARK = 16
"""The brightness that some pixel of images has, unless their files hold fewer than 16 bits in 16."""


def dark_line(what: str, brightest: int) -> str:
    """The line on images, `what` in words, that are below `DARK`."""
    return printable(
        f"no pixel of {what} is brighter than {brightest} of 255: of 16-bit files the upper 8 bits are taken; if they "
        "hold 12 bits or fewer, convert them"
    )


def decode_file(encoded: bytes, file: object, size: int, channels: int) -> np.ndarray:
    """`decode_image` of a file's bytes; raises a `UserError` with the file's name if it fails."""
    try:
        return decode_image(encoded, size, channels)
    except Exception as error:  # Pillow documents no closed list of what a damaged file raises
        unknown = f"neither {', '.join(CONTENTS[:-1])} nor {CONTENTS[-1]}"
        reason = unknown if "BytesIO" in str(error) else reason_of(error)
        raise UserError(
            f"cannot decode the image {file} ({reason}); expected a whole image; repair the file or remove it"
        ) from error


def decode_image(encoded: bytes, size: int, channels: int) -> np.ndarray:
    """An encoded image as uint8 `[size, size, channels]`, grey (1) or RGB (3); the first frame if there are several.

    An image of another size is resized to a square, whatever its aspect ratio, by bilinear interpolation with
    antialiasing.

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
    """The image with 8 bits per channel: 16-bit grey keeps its upper 8 bits, since `convert` would clip at 255."""
    from PIL.Image import fromarray

    if not image.mode.startswith(("I", "F")):
        return image
    grey = np.asarray(image)
    if image.mode == "F" or grey.min() < 0 or grey.max() > 65535:
        raise ValueError("grey of 32 bits; expected 8 or 16")
    return fromarray((grey >> 8).astype(np.uint8))


@contextlib.contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silences Pillow's warnings about damaged images, which raise errors here."""
    logger = logging.getLogger("PIL")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")
            yield
    finally:
        logger.setLevel(level)
