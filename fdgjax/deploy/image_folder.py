"""A party's own folder of images, `<class>/<file>`, as arrays."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fdgjax.data.sources.decoding import decode_file
from fdgjax.data.sources.file_groups import file_groups
from fdgjax.data.sources.listing import list_whole
from fdgjax.data.sources.source import read_bytes
from fdgjax.deploy.terms import OwnSamples
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_bytes


def files_of(folder: Path, class_names: Sequence[str]) -> list[tuple[Path, int]]:
    """The images of a folder with their labels, in the order of the file names.

    Raises:
      UserError: no such folder, or a class that is not among `class_names`.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; expected one with a folder of images for each class; see node-config")
    found: list[tuple[Path, int]] = []
    for one in list_whole(folder).folders:
        if one.name not in class_names:
            raise UserError(
                f"{one} is no class of this federation; expected folders named {', '.join(class_names)}; rename it or "
                "move it away"
            )
        found += [(path, class_names.index(one.name)) for path in list_whole(one).images]
    return sorted(found, key=lambda item: (item[0].name, item[1]))


def folder_digest(
    folder: Path, files: Sequence[tuple[Path, int]], class_names: Sequence[str], image_shape: Sequence[int]
) -> str:
    """A digest of the files' names, sizes and times of change, and of what is read from them."""
    size, _, channels = image_shape
    facts = [(str(path.relative_to(folder)), (stat := path.stat()).st_size, stat.st_mtime_ns) for path, _ in files]
    return hashlib.sha256(repr((facts, list(class_names), size, channels)).encode()).hexdigest()[:16]


def groups_of(files: Sequence[tuple[Path, int]], pattern: str) -> np.ndarray | None:
    """The names of images' groups; None without a pattern. Raises like `file_groups`."""
    return np.array(file_groups([path.name for path, _ in files], pattern), np.str_) if pattern else None


def decoded_folder(
    folder: Path, class_names: Sequence[str], image_shape: Sequence[int], cache: Path, group: str = ""
) -> OwnSamples:
    """The images of a folder, decoded and resized as in a simulation; the result is kept in `cache`.

    Args:
      folder, class_names, image_shape: of the images. cache: a folder. group: see `groups_of`.

    Raises:
      UserError: like `files_of` and `groups_of`, or an image that cannot be decoded.
    """
    files, (size, _, channels) = files_of(folder, class_names), image_shape
    kept = cache / f"images-{folder_digest(folder, files, class_names, image_shape)}.npy"
    labels, groups = np.array([label for _, label in files], np.int32), groups_of(files, group)
    if kept.is_file():
        return OwnSamples(np.load(kept, allow_pickle=False), labels, groups)
    images = np.empty((len(files), size, size, channels), np.uint8)
    for place, (path, _) in enumerate(files):
        images[place] = decode_file(read_bytes(path), path, size, channels)
    make_folder(cache)
    encoded = io.BytesIO()
    np.save(encoded, images, allow_pickle=False)
    write_bytes(kept, encoded.getvalue())
    return OwnSamples(images, labels, groups)
