"""Image files and folders, read into the format of a model's training images and predicted."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fdgjax.data.sources.decoding import CONTENTS, DARK, dark_line, decode_image, quiet_pillow
from fdgjax.data.sources.listing import IMAGE_SUFFIXES, Listing, list_folder, say_skipped
from fdgjax.inference.classifier import SAMPLES_AT_ONCE, in_compiled_batches
from fdgjax.inference.predictor import Predictor
from fdgjax.utils.errors import UserError

LOGGER = logging.getLogger("fdgjax")


Decoded = tuple[list[int], np.ndarray]
"""Positions of samples, and the samples: images uint8 `[batch, H, W, channels]`, or others float32 `[batch, ...]`."""


class ImagePath(NamedTuple):
    """An image file; `named`: whether the user named it, else it was found in a folder."""

    path: Path
    named: bool


class Predictions(NamedTuple):
    """kept: positions of the samples that could be read. probabilities: of their classes, `[kept, classes]`.
    distances: `[kept]`, None of a predictor without safeguards."""

    kept: list[int]
    probabilities: np.ndarray
    distances: np.ndarray | None


def images_at(paths: Sequence[Path]) -> list[ImagePath]:
    """The images that paths name: files, and folders with all their subfolders. Other files in folders are skipped, and
    logged in one line for each folder named.

    Raises:
      UserError: a path that does not exist, or a folder without images.
    """
    found: list[ImagePath] = []
    for path in paths:
        if path.is_dir():
            found += [ImagePath(image, named=False) for image in images_below(path)]
        elif path.exists():
            found.append(ImagePath(path, named=True))
        else:
            raise UserError(f"{path} does not exist; expected image files, or folders of them")
    return found


def images_below(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders; raises and logs like `images_at`."""
    each = list(listings(folder))
    say_others(folder, each)
    images = [image for listing in each for image in listing.images]
    if not images:
        raise UserError(f"no images in {folder}; expected files that end in {', '.join(IMAGE_SUFFIXES)}")
    return images


def say_others(folder: Path, each: Sequence[Listing], outside: Sequence[Path] = ()) -> None:
    """Logs, in one line, what folders below `folder` contain besides images, and images outside of class folders."""
    others = [path for listing in each for path in listing.others]
    broken = [path for listing in each for path in listing.broken]
    hidden = [path for listing in each for path in listing.hidden]
    kinds = {
        "images outside class folders": outside,
        "files that are not images": others,
        "links that lead nowhere": broken,
        "hidden or system files": hidden,
    }
    say_skipped(folder, kinds, lost=bool(outside or others or broken))


def listings(folder: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Listing]:
    """The contents of a folder and of all its subfolders, but of links to a folder on the way there."""
    found, way = list_folder(folder), seen | {folder.resolve()}
    yield found
    for below in found.folders:
        if below.resolve() not in way:
            yield from listings(below, way)


def predict_decoded(predictor: Predictor, decoded: Iterable[Decoded]) -> Predictions:
    """Predicts samples, a few at a time."""
    compiled, kept, found = jax.jit(predictor.predicted), list[int](), []
    for places, pixels in decoded:
        kept += places
        found.append(in_compiled_batches(compiled, pixels))
    probabilities, distances = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
    return Predictions(kept, probabilities, distances)


def decoded_images(image_shape: Sequence[int], images: Sequence[ImagePath]) -> Iterator[Decoded]:
    """The images that can be read, a few at a time: their positions, and uint8 `[batch, H, W, channels]`. An image
    found in a folder that cannot be read is skipped, with a line that names it; a last line counts those below `DARK`.

    Raises:
      UserError: an image that the user named, or every image, cannot be read; or a model whose images are not square.
    """
    size, width, channels = image_shape
    if size != width:
        raise UserError(
            f"the model was trained on arrays of {size}x{width}, and files become squares; expected arrays of that "
            "size: fdgjax.open_run(RUN).predict(images), or program.call(images) of an export"
        )
    brightest = list[int]()
    for start in range(0, len(images), SAMPLES_AT_ONCE):
        some = images[start : start + SAMPLES_AT_ONCE]
        with quiet_pillow():
            read = [(place, decoded(image, size, channels)) for place, image in enumerate(some, start)]
        pixels = [one for _, one in read if one is not None]
        if pixels:
            brightest += [int(one.max()) for one in pixels]
            yield [place for place, one in read if one is not None], np.stack(pixels)
    if not brightest:
        raise UserError(f"none of the {len(images):,} images can be read; expected {', '.join(CONTENTS)}")
    if dark := [most for most in brightest if most < DARK]:
        LOGGER.warning(dark_line(f"{len(dark):,} of {len(brightest):,} images", max(dark)))


def decoded(image: ImagePath, size: int, channels: int) -> np.ndarray | None:
    """An image uint8 `[size, size, channels]`, by the function that fills the data cache; None for one that cannot be
    read and was found in a folder. Logs and raises like `decoded_images`."""
    try:
        return decode_image(image.path.read_bytes(), size, channels)
    except Exception as error:  # Pillow documents no complete list of errors for damaged files
        reason = getattr(error, "strerror", None) or type(error).__name__
        said = f"cannot decode the image {image.path} ({reason}); expected {', '.join(CONTENTS)}"
        if image.named:
            raise UserError(said) from error
        LOGGER.warning(str(UserError(f"{said}: skipped")))
    return None
