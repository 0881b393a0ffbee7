"""From the files of a release to the folder that the loaders read.

Archives come from strangers: their images are written below one folder and nowhere else, and no more than expected. An
archive with a path that leads elsewhere, with a link or a device, or with more bytes than the release can have is
refused as a whole: whoever made it meant harm, or something else than the data set.
"""

import contextlib
import gzip
import json
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fdgjax.data.download.release import Assemble, amount
from fdgjax.data.sources.layouts import FolderLayout
from fdgjax.data.sources.listing import IMAGE_SUFFIXES, SYSTEM
from fdgjax.utils.errors import UserError

LARGEST = 2**30
"""The most bytes of a member that is read: all of it is in memory."""
ROWS = 64
"""Rows of a Parquet file that are in memory at once."""
DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError),
    *(RuntimeError, ValueError, KeyError, IndexError, TypeError),
)
"""What libraries raise for a file that is not what its suffix says, and `ValueError` here for one that is refused."""


class Member(NamedTuple):
    """A regular file in an archive: its path there, its bytes by the archive's word, and what reads it."""

    path: PurePosixPath
    size: int
    read: Callable[[], bytes]


def as_they_are(files: Mapping[str, Path], into: Path, most: int) -> None:
    """The files themselves."""
    del most
    for name, path in files.items():
        shutil.copyfile(path, into / name)


def images_of(layout: FolderLayout) -> Assemble:
    """The images of all archives, as `<domain>/<class>/<file>` by their own names, wherever in an archive they are."""

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        for archive in files.values():
            with refusing(archive):
                if not unpack(archive, partial(in_layout, layout), into, most):
                    raise ValueError(f"no image of {layout.words}")

    return assemble


def rows_of(layout: FolderLayout) -> Assemble:
    """The rows of Hugging Face's Parquet files: an `image` in bytes, a `domain` by name and a `label` by number."""

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        from pyarrow import parquet

        del most  # it is no archive, but images as they are
        for file in files.values():
            with refusing(file), parquet.ParquetFile(file) as opened:
                rows = (row for batch in opened.iter_batches(ROWS) for row in batch.to_pylist())
                for number, row in enumerate(rows):
                    image = row["image"]["bytes"]
                    suffix = "png" if image[:4] == b"\x89PNG" else "jpg"
                    path = PurePosixPath(row["domain"], layout.classes[row["label"]], f"{number:06d}.{suffix}")
                    write(image, into, in_layout(layout, path))

    return assemble


def camera_traps(layout: FolderLayout, annotations: str, images: str) -> Assemble:
    """The images of an archive by the locations and categories of an archive of annotations, as DomainBed has them.

    Args:
      layout: its domains are `location_<location>`, its classes the categories that are used.
      annotations, images: the names of the files. An image of two categories is one of both classes.
    """

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        places: dict[str, set[str]] = defaultdict(set)
        with refusing(files[annotations]):
            for member in archive_members(files[annotations], most):
                if member.path.suffix == ".json" and not member.path.name.startswith("."):
                    for name, folder in of_annotations(json.loads(member.read())):
                        places[name].update(in_layout(layout, PurePosixPath(folder, name)))
        with refusing(files[images]):
            unpack(files[images], lambda path: sorted(places.get(path.name, ())), into, most)

    return assemble


def of_annotations(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of annotated images (COCO's format), with `location_<location>/<category>`."""
    categories = {entry["id"]: entry["name"] for entry in found["categories"]}
    pictures = {entry["id"]: (str(entry["file_name"]), entry["location"]) for entry in found["images"]}
    for entry in found["annotations"]:
        name, location = pictures[entry["image_id"]]
        yield PurePosixPath(name).name, f"location_{location}/{categories[entry['category_id']]}"


def in_layout(layout: FolderLayout, path: PurePosixPath) -> Sequence[str]:
    """The last three parts of a path that belongs to the data set."""
    parts = path.parts[-3:]
    if len(parts) < 3 or path.suffix.lower() not in IMAGE_SUFFIXES:
        return ()
    if any(part.startswith(".") or part in SYSTEM for part in path.parts):
        return ()
    domain, label = map(layout.own, parts[:2])
    known = domain in layout.domains and (not layout.classes or label in layout.classes)
    return ("/".join(parts),) if known else ()


def unpack(archive: Path, place: Callable[[PurePosixPath], Sequence[str]], into: Path, most: int) -> int:
    """Writes the members that have a place; returns how many there are.

    Args:
      archive: a file whose suffix is among `OPENERS`.
      place: where the member of a path goes, below `into`: nowhere, to one place or to several.
      most: the bytes that all members may have together.

    Raises:
      ValueError, or another of `DAMAGE`: an archive that is damaged or refused.
    """
    written = 0
    for member in archive_members(archive, most):
        if targets := place(member.path):
            write(member.read(), into, targets)
            written += 1
    return written


def write(content: bytes, into: Path, targets: Sequence[str]) -> None:
    """Writes a member to places below `into`, which nothing else has."""
    for target in targets:
        path = into / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise ValueError(f"two members for {target}")
        path.write_bytes(content)


@contextlib.contextmanager
def refusing(archive: Path) -> Iterator[None]:
    """Turns what is said of an archive that is not the release's into a `UserError`."""
    try:
        yield
    except DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{archive} is damaged or not the release's ({reason}); nothing of it is used: remove it, and repeat the "
            "command"
        ) from error


def archive_members(archive: Path, most: int) -> Iterator[Member]:
    """The regular files of an archive, as long as none leads out of its folder and all are within `most` bytes."""
    size = 0
    for member in OPENERS[archive.suffix](archive):
        size += member.size
        if member.path.is_absolute() or ".." in member.path.parts:
            raise ValueError(f"{member.path} leads out of its folder")
        if size > most or member.size > LARGEST:
            raise ValueError(f"more than {amount(min(most, LARGEST))} with {member.path}")
        yield member


def of_zip(archive: Path) -> Iterator[Member]:
    """The regular files of a zip."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise ValueError(f"{entry.filename} is a link")
            if not entry.is_dir():
                yield Member(PurePosixPath(entry.filename), entry.file_size, partial(opened.read, entry))


def of_tar(archive: Path) -> Iterator[Member]:
    """The regular files of a tar, compressed or not; `tarfile.data_filter` refuses devices and links that lead out."""
    with tarfile.open(archive) as opened:
        for entry in opened:
            tarfile.data_filter(entry, str(archive.parent))
            if stream := opened.extractfile(entry) if entry.isreg() else None:
                yield Member(PurePosixPath(entry.name), entry.size, stream.read)


OPENERS: Mapping[str, Callable[[Path], Iterator[Member]]] = {".zip": of_zip, ".tar": of_tar, ".gz": of_tar}
"""What is in an archive, by its suffix."""
