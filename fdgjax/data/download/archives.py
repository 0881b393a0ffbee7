"""Unpacking the files of a release into the folder that the loaders read.

Archives are untrusted: images are written only below one folder, and no more bytes than expected. An archive with a
path that leads elsewhere, with a link or a device, or with more bytes than the release can have is refused as a whole:
it is malicious, or not the data set.
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
from fdgjax.utils.errors import UserError, reason_of
from fdgjax.utils.files import stays_inside

LARGEST = 2**30
"""Maximum size in bytes of an archive member, which is read into memory as a whole."""
ROWS = 64
"""Rows of a Parquet file that are in memory at the same time."""
DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError),
    *(RuntimeError, ValueError, KeyError, IndexError, TypeError),
)
"""What libraries raise for a file that does not match its suffix; this module raises `ValueError` to refuse one."""


class Member(NamedTuple):
    """A regular file in an archive: its path there, its size as the archive states it, and a function that reads it."""

    path: PurePosixPath
    size: int
    read: Callable[[], bytes]


def as_they_are(files: Mapping[str, Path], into: Path, most: int) -> None:
    """Copies the files unchanged."""
    del most
    for name, path in files.items():
        shutil.copyfile(path, into / name)


def images_of(layout: FolderLayout) -> Assemble:
    """Extracts the images of all archives as `<domain>/<class>/<file>`, whatever folders these are in."""

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        for archive in files.values():
            with refusing(archive):
                if not unpack(archive, partial(in_layout, layout), into, most):
                    raise ValueError(f"no image of {layout.words}")

    return assemble


def parquet_images(layout: FolderLayout) -> Assemble:
    """Extracts the rows of Hugging Face's Parquet files: `image` as bytes, `domain` as a name, `label` as a number."""

    def assemble(files: Mapping[str, Path], into: Path, most: int) -> None:
        from pyarrow import parquet

        del most  # not an archive: nothing is unpacked
        for file in files.values():
            with refusing(file), parquet.ParquetFile(file) as opened:
                rows = (row for batch in opened.iter_batches(ROWS) for row in batch.to_pylist())
                for number, row in enumerate(rows):
                    image = row["image"]["bytes"]
                    suffix = "png" if image[:4] == b"\x89PNG" else "jpg"
                    path = PurePosixPath(row["domain"], layout.classes[row["label"]], f"{number:06d}.{suffix}")
                    write_member(image, into, in_layout(layout, path))

    return assemble


def camera_traps(layout: FolderLayout, annotations: str, images: str) -> Assemble:
    """Extracts images by location and category, which are in a second archive of annotations, as DomainBed does.

    Args:
      layout: its domains are `location_<location>`, its classes the categories that are used.
      annotations, images: the names of the two archives. An image with two categories is written to both classes.
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
    """Each annotated image's name (COCO's format) with `location_<location>/<category>`."""
    categories = {entry["id"]: entry["name"] for entry in found["categories"]}
    pictures = {entry["id"]: (str(entry["file_name"]), entry["location"]) for entry in found["images"]}
    for entry in found["annotations"]:
        name, location = pictures[entry["image_id"]]
        yield PurePosixPath(name).name, f"location_{location}/{categories[entry['category_id']]}"


def in_layout(layout: FolderLayout, path: PurePosixPath) -> Sequence[str]:
    """The last three parts of a path if they belong to the data set, else nothing."""
    parts = path.parts[-3:]
    if len(parts) < 3 or path.suffix.lower() not in IMAGE_SUFFIXES:
        return ()
    if any(part.startswith(".") or part in SYSTEM for part in path.parts):
        return ()
    domain, label = map(layout.own, parts[:2])
    known = domain in layout.domains and (not layout.classes or label in layout.classes)
    return ("/".join(parts),) if known else ()


def unpack(archive: Path, place: Callable[[PurePosixPath], Sequence[str]], into: Path, most: int) -> int:
    """Writes the members for which `place` returns a target; returns their number.

    Args:
      archive: a file whose suffix is among `OPENERS`.
      place: from a member's path to its targets below `into`: none, one or several.
      most: the maximum number of bytes of all members together.

    Raises:
      ValueError, or another of `DAMAGE`: an archive that is damaged or refused.
    """
    written = 0
    for member in archive_members(archive, most):
        if targets := place(member.path):
            write_member(member.read(), into, targets)
            written += 1
    return written


def write_member(content: bytes, into: Path, targets: Sequence[str]) -> None:
    """Writes a member to targets below `into`, which must not exist yet."""
    for target in targets:
        path = into / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise ValueError(f"two members for {target}")
        path.write_bytes(content)


@contextlib.contextmanager
def refusing(archive: Path) -> Iterator[None]:
    """Turns errors about a damaged or refused archive into a `UserError`."""
    try:
        yield
    except DAMAGE as error:
        reason = reason_of(error)
        raise UserError(
            f"{archive} is damaged or not the release's ({reason}); nothing of it is used: remove it, and repeat the "
            "command"
        ) from error


def archive_members(archive: Path, most: int) -> Iterator[Member]:
    """The regular files of an archive; raises if a path leads out of its folder, or if they exceed `most` bytes."""
    size = 0
    for member in OPENERS[archive.suffix](archive):
        size += member.size
        if not stays_inside(member.path):
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
"""Readers of an archive's members, by its suffix."""
