"""Archives from strangers: their images are written below one folder and nowhere else, and no more than expected.

An archive with a member that leads elsewhere (an absolute path, `..`, a drive, a backslash), that is a link, a device
or a pipe, or that holds more bytes or entries than the release does, is refused as a whole: whoever made it meant harm,
or something else than the data set.
"""

import contextlib
import json
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fdgjax.errors import UserError
from fdgjax.fetching.release import Bounds, amount

PIECE = 2**20
ROWS = 64
"""Rows of a Parquet file that are in memory at once."""

MAGIC: Mapping[bytes, str] = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}
"""How the bytes of an image begin, and the suffix of its file."""


class Member(NamedTuple):
    """A regular file in an archive: its path there, its bytes by the archive's word, and its content in pieces."""

    name: str
    size: int
    pieces: Callable[[], Iterator[bytes]]


Place = Callable[[PurePosixPath], Sequence[str]]
"""Where the member of a path goes, below the data set's folder: nowhere, to one place or to several."""


def unpack(archive: Path, classes: Sequence[str], place: Place, into: Path, bounds: Bounds) -> int:
    """Writes the members that have a place.

    Args:
      archive: a file whose suffix is among `OPENERS`.
      classes: the names of a Parquet file's labels, should it not have them itself.

    Returns:
      The number of files written.

    Raises:
      UserError: an archive that is damaged or refused.
    """
    written = 0
    for member in bounded(archive, members(archive, classes), bounds):
        targets = [into / target for target in place(PurePosixPath(member.name))]
        for target in targets[:1]:
            write(archive, member, target)
        for target in targets[1:]:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(targets[0], target)
        written += len(targets)
    return written


def members(archive: Path, classes: Sequence[str] = ()) -> Iterator[Member]:
    """The regular files of an archive; see `unpack`."""
    with damage(archive):
        yield from OPENERS[archive.suffix](archive, classes)


def bounded(archive: Path, held: Iterator[Member], bounds: Bounds) -> Iterator[Member]:
    """The same members, as long as they are within the bounds."""
    size = 0
    for count, member in enumerate(held, 1):
        size += member.size
        if size > bounds.size:
            raise refused(archive, f"more than {amount(bounds.size)}, of which {member.name}")
        if count > bounds.entries:
            raise refused(archive, f"more than {bounds.entries:,} entries")
        yield member


def write(archive: Path, member: Member, target: Path) -> None:
    """Writes a member to a file that must not exist; no more bytes than it has by the archive's word."""
    target.parent.mkdir(parents=True, exist_ok=True)
    have = 0
    try:
        with target.open("xb") as out, damage(archive):
            for piece in member.pieces():
                have += len(piece)
                if have > member.size:
                    raise refused(archive, f"more of {member.name} than it says")
                out.write(piece)
    except FileExistsError as error:
        raise refused(archive, f"two members for {target.name}, of which {member.name}") from error
    if have != member.size:
        raise UserError(f"{archive} has {have:,} of {member.size:,} bytes of {member.name}; {again(archive)}")


@contextlib.contextmanager
def damage(archive: Path) -> Iterator[None]:
    """Turns what libraries say of a damaged archive into a `UserError`."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise UserError(f"{archive} is damaged ({' '.join(str(error).split())}); {again(archive)}") from error


def again(archive: Path) -> str:
    """What to do with an archive that is not the one expected."""
    return f"expected the file of the release: remove {archive.name} and repeat the command"


def refused(archive: Path, why: str) -> UserError:
    """The error for an archive that is not unpacked."""
    return UserError(f"{archive} has {why}; expected images of the data set alone: nothing of it is used, remove it")


def checked(archive: Path, name: str) -> str:
    """The path of a member, which must lead below the folder that it is unpacked in."""
    if name.startswith("/") or "\\" in name or "\0" in name or re.match("[A-Za-z]:", name) or ".." in name.split("/"):
        raise refused(archive, f"a member that leads out of its folder, {name}")
    return name


def of_zip(archive: Path, classes: Sequence[str]) -> Iterator[Member]:
    """The regular files of a zip."""
    del classes
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            name = checked(archive, entry.orig_filename)
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise refused(archive, f"a link or a device, {name}")
            if entry.flag_bits & 1:
                raise refused(archive, f"an encrypted member, {name}")
            if not entry.is_dir():
                yield Member(name, entry.file_size, partial(in_pieces, partial(opened.open, entry)))


def of_tar(archive: Path, classes: Sequence[str]) -> Iterator[Member]:
    """The regular files of a tar, compressed or not."""
    del classes
    with tarfile.open(archive) as opened:
        for entry in opened:
            name = checked(archive, entry.name)
            if not (entry.isreg() or entry.isdir()):
                raise refused(archive, f"a link or a device, {name}")
            if entry.isreg():
                yield Member(name, entry.size, partial(in_pieces, partial(opened.extractfile, entry)))


def in_pieces(open_it: Callable[[], Any]) -> Iterator[bytes]:
    """The bytes of a member."""
    with open_it() as stream:
        while piece := stream.read(PIECE):
            yield piece


def of_parquet(archive: Path, classes: Sequence[str]) -> Iterator[Member]:
    """The rows of a Parquet file of Hugging Face's as `<domain>/<class>/<row>.jpg`.

    Columns `image` (with the bytes of an image file), `domain` and `label`; numbers are names of the file's metadata.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(archive) as opened:
            columns = ("image", "domain", "label")
            if absent := set(columns) - set(opened.schema_arrow.names):
                raise refused(archive, f"no column {', '.join(sorted(absent))}")
            names = {column: names_of(opened.schema_arrow.metadata, column) for column in columns}
            names["label"] = names["label"] or list(classes)
            row = 0
            for batch in opened.iter_batches(ROWS, columns=list(columns)):
                for found in batch.to_pylist():
                    yield of_row(archive, found, names, row)
                    row += 1
    except (pa.ArrowException, OSError, KeyError, IndexError, TypeError) as error:
        if isinstance(error, OSError) and error.errno:  # the system's; pyarrow's own have no number
            raise
        raise UserError(f"{archive} is damaged ({' '.join(str(error).split())}); {again(archive)}") from error


def names_of(metadata: Mapping[bytes, bytes] | None, column: str) -> list[str]:
    """The names of a column's numbers by Hugging Face's metadata; empty where there are none."""
    try:
        feature = json.loads((metadata or {})[b"huggingface"])["info"]["features"][column]
        return [str(name) for name in feature["names"]]
    except (KeyError, TypeError, ValueError):
        return []


def of_row(archive: Path, found: Mapping[str, Any], names: Mapping[str, Sequence[str]], row: int) -> Member:
    """One row of a Parquet file."""
    content = found["image"]["bytes"]
    domain, label = (named(found[column], names[column]) for column in ("domain", "label"))
    begins = content[:8] if isinstance(content, bytes) else b""
    suffix = next((suffix for magic, suffix in MAGIC.items() if begins.startswith(magic)), "")
    if not suffix:
        raise refused(archive, f"no image in row {row}")
    if "/" in domain + label or "" in (domain, label):
        raise refused(archive, f"a domain {domain} and a class {label}, no names of folders, in row {row}")
    return Member(checked(archive, f"{domain}/{label}/{row:06d}{suffix}"), len(content), lambda: iter((content,)))


def named(value: Any, names: Sequence[str]) -> str:
    """A name, or that of a number."""
    if isinstance(value, str):
        return value
    if not 0 <= value < len(names):
        raise IndexError(f"no name for {value}")
    return names[value]


OPENERS: Mapping[str, Callable[[Path, Sequence[str]], Iterator[Member]]] = {
    ".zip": of_zip,
    ".tar": of_tar,
    ".gz": of_tar,
    ".parquet": of_parquet,
}
"""What is in an archive, by its suffix."""
