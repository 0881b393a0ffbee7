"""Files that survive a kill or a power cut whole.

A file is written beside, put on the disk and only then given its name; the folder's own entry follows.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


def write_text(path: Path, text: str) -> None:
    """Whole or not at all, and on the disk when this returns."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Whole or not at all, and on the disk when this returns."""
    # Not the process id: containers on other machines that write here can have the same one.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync(path.parent)


def write_json(path: Path, content: Any) -> None:
    """JSON, whole or not at all, and on the disk when this returns."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """All records as JSON lines, replacing the file in one step."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """One more JSON line; not yet on the disk, as a checkpoint has it too."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def make_folder(path: Path) -> None:
    """The folder, with those above it, made where they do not exist and on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Puts what a file or a folder holds on the disk, where a power cut cannot take it back."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """Yields whether this process alone holds the lock file until the end of the block; with `wait`, waits until it
    does.

    A lock of the operating system (`filelock`): it ends with its process, however that ends, so that no stale lock
    remains.

    Raises:
      OSError: a file system without locks.
    """
    held = FileLock(path, blocking=wait, fallback_to_soft=False)
    with contextlib.suppress(Timeout):
        held.acquire()
    try:
        yield held.is_locked
    finally:
        held.release()
