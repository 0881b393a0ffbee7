"""Atomic writing of files: after a kill or a power cut, a file is either complete or absent.

A file is written under a temporary name, flushed to disk and only then renamed; then its folder is flushed.
"""

import contextlib
import csv
import errno
import io
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from filelock import FileLock, Timeout

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Reasons for which a file cannot be written, rather than not be locked."""


class NoLocksError(OSError):
    """A file system without locks."""


def write_text(path: Path, text: str) -> None:
    """Writes a text atomically; it is flushed to disk when this returns."""
    write_bytes(path, text.encode())


def stays_inside(path: PurePath) -> bool:
    """Whether a path, taken from a folder, stays in it: it is relative and nowhere goes up."""
    return not path.is_absolute() and ".." not in path.parts


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """The rows as CSV."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def write_bytes(path: Path, content: bytes) -> None:
    """Writes bytes atomically; they are flushed to disk when this returns."""
    # Not the process id: a container on another machine that writes here may have the same one.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path), beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync(path.parent)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Names the file in system errors of the block that name none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def left_beside(path: Path) -> list[Path]:
    """The temporary files that kills while `path` was written have left."""
    return list(path.parent.glob(f".{path.name}.*"))


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically; it is flushed to disk when this returns."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Writes all records as JSON lines, replacing the file atomically."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Appends a JSON line. It is not flushed to disk, as checkpoints hold the record, too."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def make_folder(path: Path) -> None:
    """Makes the folder and its parents if they do not exist, flushed to disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Flushes the content of a file or a folder to disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FOREVER = -1.0
"""The seconds to wait for a lock until it is free."""


@contextlib.contextmanager
def lock(path: Path, wait: float = 0) -> Iterator[bool]:
    """Locks a file until the end of the block, and yields whether this process got the lock within `wait` seconds.

    The lock is the operating system's (by `filelock`): it is released when its process ends, however that ends, so that
    no stale lock remains.

    Raises:
      NoLocksError: a file system without locks.
      OSError: the file cannot be written.
    """
    held = FileLock(path, timeout=wait, fallback_to_soft=False)
    try:
        held.acquire()
    except Timeout:
        pass
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise
        raise NoLocksError(str(error)) from error
    try:
        yield held.is_locked
    finally:
        held.release()
