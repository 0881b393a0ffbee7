"""Checksums of files, folders and JSON, so that damage of a single bit is detected. All of them are SHA-256.

A folder's checksums are in its file `checksums.txt`: the lines that `sha256sum` prints for all its files, sorted by the
bytes of their paths, and then `# ` and the SHA-256 of these lines; `sha256sum -c checksums.txt` verifies the files,
too. A JSON object has the checksum of its other keys under the key `sha256`.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdgjax.utils.errors import UserError
from fdgjax.utils.files import sync, write_json, write_text

CHECKSUMS = "checksums.txt"
CHECKSUM = "sha256"
"""The key of a JSON object that holds the checksum of its other keys."""


class Damaged(UserError):
    """A file that differs from its checksum, is missing or cannot be read."""


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(folder: Path) -> str:
    """The SHA-256 of the lines that `sha256sum` prints for all files below a folder except `checksums.txt`, sorted by
    the bytes of their paths."""
    return hashlib.sha256(_lines_of(folder)).hexdigest()


def write_checksums(folder: Path, many: bool = False) -> str:
    """Flushes all files and folders below `folder` to disk, and then writes `checksums.txt`; its presence implies that
    the files are on disk. Returns the folder's `tree_sha256`.

    With `many`, all file systems are flushed at once: flushing a single file takes milliseconds, and hundreds of
    thousands of files half an hour.
    """
    if many:
        os.sync()
    else:
        for path in (*folder.rglob("*"), folder):
            sync(path)
    lines = _lines_of(folder)
    tree = hashlib.sha256(lines).hexdigest()
    write_text(folder / CHECKSUMS, f"{lines.decode()}# {tree}\n")
    return tree


def verify(folder: Path) -> Path:
    """Returns the folder, after checking that every file listed in `checksums.txt` has its checksum; files added later
    are not checked.

    Raises:
      Damaged: a file is missing, cannot be read or differs.
    """
    for line in _read_lines(folder):
        # Between the two blanks stands nothing, or, after a CRC-32, the number of bytes; see `_crc32`.
        wanted, size, name = line.split(" ", 2)
        try:
            found = _crc32(folder / name) if size else sha256(folder / name)
        except OSError as error:
            raise Damaged(f"{name}: {error.strerror}") from error
        if found != wanted:
            raise Damaged(f"{name} differs from its checksum")
    return folder


def _lines_of(folder: Path) -> bytes:
    """The lines `<SHA-256>  <path>` of all files below the folder except `checksums.txt`."""
    paths = sorted((path.relative_to(folder).as_posix().encode(), path) for path in folder.rglob("*") if path.is_file())
    return b"".join(b"%s  %s\n" % (sha256(path).encode(), name) for name, path in paths if name != CHECKSUMS.encode())


def _read_lines(folder: Path) -> list[str]:
    """The lines of `checksums.txt` without the last, after checking them against that last line."""
    try:
        *lines, last, end = (folder / CHECKSUMS).read_bytes().split(b"\n")
    except OSError as error:
        raise Damaged(f"{CHECKSUMS}: {error.strerror}") from error
    except ValueError as error:
        raise Damaged(f"{CHECKSUMS} is cut short") from error
    body = b"".join(line + b"\n" for line in lines)
    if end or last not in (b"# " + hashlib.sha256(body).hexdigest().encode(), b"%08x" % zlib.crc32(body)):
        raise Damaged(f"{CHECKSUMS} differs from its own checksum")
    return [line.decode() for line in lines]


def _crc32(path: Path) -> str:
    """The CRC-32 of the CRC-32s of a file's blocks of 16 MiB, in 8 hexadecimal digits.

    Early runs of version 0.2 have this checksum, in lines `<CRC-32> <bytes> <path>`; the last line is the CRC-32 of
    these lines.
    """
    with path.open("rb") as file:
        blocks = [zlib.crc32(block).to_bytes(4) for block in iter(lambda: file.read(2**24), b"")]
    return f"{zlib.crc32(b''.join(blocks)):08x}"


def json_sha256(content: Mapping[str, Any]) -> str:
    """The SHA-256 of content as JSON, which keeps floating-point numbers exactly."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON object with the checksum of its content: atomically, and flushed to disk when this returns."""
    write_json(path, {**content, CHECKSUM: json_sha256(content)})


def read_checked_json(path: Path) -> dict[str, Any]:
    """What `write_checked_json` wrote, without the checksum.

    Raises:
      Damaged: the file is not JSON, or its content differs from its checksum.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        wanted = content.pop(CHECKSUM, None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise Damaged(f"{path} is damaged ({type(error).__name__}: {error}); expected JSON with a checksum") from error
    if wanted is None:
        raise Damaged(f"{path} is damaged or of a version before checksums (it has no {CHECKSUM}); expected one")
    if wanted != json_sha256(content):
        raise Damaged(f"{path} is damaged: its content does not have the checksum that was written with it")
    return content
