"""Rotated digits: six disjoint parts of one data set, part i rotated by 15 i degrees; or the first part by every angle.

Both data sets are split by `permutation = RandomState(0).permutation(samples)`: NumPy guarantees the streams of
this legacy generator, so every version gives the same domains. With `same_images` all domains show the first part, so
that the upright domain is the same in both cases. Images are rotated about the centre, by bilinear interpolation within
the original frame (outside it: black), as in the usual RotatedMNIST.
"""

import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.data.sources.layouts import fetching
from fdgjax.data.sources.source import Example, Source, fingerprint, png
from fdgjax.utils.errors import UserError

ANGLES = (0, 15, 30, 45, 60, 75)
DOMAINS = tuple(f"r{angle}" for angle in ANGLES)
DIGITS = tuple(str(digit) for digit in range(10))
EMBEDDED = 1_797
IN_WORDS = {
    False: "in six parts, part i rotated by 15 i degrees",
    True: "the same ones rotated by each of six angles",
}
MNIST_PER_DOMAIN = 1_000
MNIST_SIDE = 28
IDX_HEADER = {
    1: 0x00000801,
    3: 0x00000803,
}  # the rank of a uint8 array -> the number its IDX file begins with


def rotate(image: np.ndarray, degrees: float) -> np.ndarray:
    """A uint8 image `[height, width]` rotated about its centre, from the second axis towards the first."""
    from scipy import ndimage

    if degrees == 0:
        return image
    turned = ndimage.rotate(image.astype(np.float32), degrees, reshape=False, order=1)
    return np.clip(np.rint(turned), 0, 255).astype(np.uint8)


def cut(samples: int, per_domain: int = 0) -> list[np.ndarray]:
    """One array of rows for each angle: disjoint, shuffled, always the same.

    Args:
      samples: number of rows.
      per_domain: rows for each angle; 0: all rows, divided as evenly as possible.
    """
    rows = np.random.RandomState(0).permutation(samples)
    return np.array_split(rows[: per_domain * len(ANGLES)] if per_domain else rows, len(ANGLES))


def shown_rows(parts: Sequence[np.ndarray], same_images: bool) -> Sequence[np.ndarray]:
    """The rows that each domain shows: its own part, or with `same_images` the first part in every domain."""
    return [parts[0]] * len(parts) if same_images else parts


def _examples(images: np.ndarray, labels: np.ndarray, parts: Sequence[np.ndarray]) -> Iterator[Example]:
    for domain, (rows, angle) in enumerate(zip(parts, ANGLES, strict=True)):
        for row in rows:
            yield Example(png(rotate(images[row], angle)), int(labels[row]), domain, "")


def rotated_digits(data_dir: str, same_images: bool = False) -> Source:
    """scikit-learn's 1,797 handwritten 8x8 digits (UCI), all of them used; needs no download.

    Pixels 0..16 become 0..255. `data_dir` is not used. With `same_images`, 300 of the digits, rotated by every angle.
    """
    del data_dir
    parts = shown_rows(cut(EMBEDDED), same_images)
    return Source(
        domain_names=DOMAINS,
        class_names=DIGITS,
        channels=1,
        native_size=8,
        samples=sum(map(len, parts)),
        fingerprint="embedded-same" if same_images else "embedded",
        description=f"scikit-learn's 8x8 digits, {IN_WORDS[same_images]}",
        examples=partial(_digits, parts),
    )


def _digits(parts: Sequence[np.ndarray]) -> Iterator[Example]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return _examples(images, labels, parts)


class IdxPair(NamedTuple):
    """MNIST's two files: `{part}-images-idx3-ubyte` and `{part}-labels-idx1-ubyte`, gzipped or not."""

    part: str
    images: Path
    labels: Path


def rotated_mnist(data_dir: str, same_images: bool = False) -> Source:
    """MNIST, 1,000 images for each of six angles: of the training files if found, else of the test files.

    With `same_images`, every angle shows the same 1,000 images (UAP, section 8).

    Looks for `{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]` in `data_dir/mnist` and in `data_dir`.

    Raises:
      UserError: no such files, or files that are truncated, not IDX, or too small.
    """
    found = _find_mnist(data_dir)
    return Source(
        domain_names=DOMAINS,
        class_names=DIGITS,
        channels=1,
        native_size=MNIST_SIDE,
        samples=MNIST_PER_DOMAIN * len(ANGLES),
        fingerprint=fingerprint(found.images.parent, (found.images, found.labels), *(["same"] if same_images else [])),
        description=f"MNIST ({found.part} files), 1,000 images a domain, {IN_WORDS[same_images]}",
        examples=partial(_mnist, found, same_images),
    )


def _find_mnist(data_dir: str) -> IdxPair:
    get_it = (
        "set data_dir (config.data.dir) to the folder of MNIST's IDX files, or to one that has it as mnist/; "
        + fetching("mnist", data_dir)
    )
    if not data_dir:
        raise UserError(f"config.data.dir got ''; expected the folder of MNIST's files; {get_it}")
    base = Path(data_dir).expanduser().absolute()
    for part in ("train", "t10k"):
        for root in (base / "mnist", base):
            for end in ("", ".gz"):
                images, labels = (
                    root / f"{part}-images-idx3-ubyte{end}",
                    root / f"{part}-labels-idx1-ubyte{end}",
                )
                if images.is_file() and labels.is_file():
                    return IdxPair(part, images, labels)
    raise UserError(
        f"config.data.dir got {base}, which has no train- or t10k-images-idx3-ubyte[.gz] with its labels, nor has its "
        f"folder mnist; expected one of them to have both; {get_it}"
    )


def _mnist(found: IdxPair, same_images: bool) -> Iterator[Example]:
    images, labels = read_idx(found.images, 3), read_idx(found.labels, 1)
    needed = MNIST_PER_DOMAIN * len(ANGLES)
    if images.shape[1:] != (MNIST_SIDE, MNIST_SIDE) or len(images) != len(labels) or len(images) < needed:
        raise UserError(
            f"{found.images} holds images {images.shape} and {labels.shape[0]} labels: expected at least "
            f"{needed} of {MNIST_SIDE}x{MNIST_SIDE} and as many labels; fetch the files again"
        )
    if labels.max() >= len(DIGITS):
        raise UserError(f"{found.labels} holds label {labels.max()}: expected 0 to 9; fetch the file again")
    return _examples(images, labels, shown_rows(cut(len(images), MNIST_PER_DOMAIN), same_images))


def read_idx(path: Path, rank: int) -> np.ndarray:
    """The uint8 array in an IDX file, gzipped if its name ends in `.gz`.

    The format: a big-endian uint32 magic number (0x0000_08_rank), `rank` uint32 sizes, then the bytes, last
    axis fastest.

    Raises:
      UserError: the file cannot be read, is no IDX file of that rank, or differs in length from its header.
    """
    header = 4 * (1 + rank)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
            head = stream.read(header)
            if len(head) != header or int.from_bytes(head[:4], "big") != IDX_HEADER[rank]:
                raise UserError(
                    f"{path} got other bytes; expected an IDX file of a uint8 array of rank {rank}; fetch it again"
                )
            shape = tuple(int.from_bytes(head[at : at + 4], "big") for at in range(4, header, 4))
            expected = math.prod(shape)
            content = stream.read(expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"cannot read {path} ({error}): it is truncated or damaged; expected a whole file; fetch it again"
        ) from error
    if len(content) != expected:
        raise UserError(
            f"{path} holds {len(content)} bytes of data; expected {expected}, by its header; fetch it again"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)
