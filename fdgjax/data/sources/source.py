"""A data set as found on the user's disk, before anything is decoded."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.utils.errors import UserError


class Example(NamedTuple):
    """One image, still encoded.

    Attributes:
      image: the bytes of an image file.
      label: index into the source's `class_names`.
      domain: index into the source's `domain_names`.
      file: where the bytes come from, for error messages; empty if from no file.
    """

    image: bytes
    label: int
    domain: int
    file: str


class Source(NamedTuple):
    """What is known of a data set before its images are read; finding it only lists file names.

    Attributes:
      domain_names: the domains, in order.
      class_names: the classes, in the order of the labels.
      channels: 1 for grey images, 3 for colour.
      native_size: height and width in pixels, or 0 where the images have no common size.
      samples: number of images.
      fingerprint: changes whenever the files do.
      description: one line about where the images come from.
      examples: reads the images, one after another, in an order that depends on nothing but the files.
      names: of the images' files, `<domain>/<class>/<file>`, in that order; () if images are not one file each.
    """

    domain_names: tuple[str, ...]
    class_names: tuple[str, ...]
    channels: int
    native_size: int
    samples: int
    fingerprint: str
    description: str
    examples: Callable[[], Iterator[Example]]
    names: Sequence[str] = ()


def fingerprint(root: Path, files: Iterable[Path], *context: object) -> str:
    """16 hexadecimal digits that change with any file's name under `root`, size, or time of modification or change.

    Contents are not read, so that thousands of files take a fraction of a second. Archives and copies may set the time
    of modification, but nothing sets the time at which the file itself last changed.

    Args:
      root: names are taken relative to it, so that a moved data set keeps its fingerprint.
      files: the data set's files.
      *context: whatever else decides what the files mean, such as the names of the classes.

    Raises:
      UserError: a file that vanished meanwhile.
    """
    digest = hashlib.sha256(repr(context).encode())
    for path in files:
        try:
            status = os.stat(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}"
        line = f"{path.relative_to(root).as_posix()}\0{status.st_size}\0{times}\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def read_bytes(path: Path) -> bytes:
    """The contents of a file; raises a `UserError` that names the file if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot read {path}: {error.strerror}; repair the file or remove it")


def png(image: np.ndarray) -> bytes:
    """A grey uint8 image `[height, width]` as the bytes of a PNG file (lossless)."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="png")
    return buffer.getvalue()
