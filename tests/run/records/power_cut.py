"""A disk that keeps what was synced and nothing else: the worst that a power cut may leave (POSIX)."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

Content = bytes | dict[str, int]


class Disk:
    """Of every file and folder below `root`, the content at its last `os.fsync`.

    A name is on the disk once its folder was synced after it had got it; a file that was named but never synced is
    empty, as after a real cut.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kept: dict[int, Content] = {}
        self.folders: set[int] = set()
        self.held: list[int] = []
        self.moments: list[dict[int, Content]] = []

    def note(self, handle: int) -> None:
        """What one file or folder holds now is kept, and a moment after it at which the power may be cut."""
        status, path = os.fstat(handle), Path(os.readlink(f"/proc/self/fd/{handle}"))
        if self.root not in (path, *path.parents):
            return
        if path.is_dir():
            entries = {entry.name: entry.inode() for entry in os.scandir(path)}
            self.folders |= {entry.inode() for entry in os.scandir(path) if entry.is_dir()}
            self.kept[status.st_ino] = entries
        else:
            self.kept[status.st_ino] = path.read_bytes()
        # While it is open no later file can get its number.
        self.held.append(os.dup(handle))
        self.moments.append(dict(self.kept))

    def after(self, moment: int, out: Path) -> Path:
        """The tree as a cut after that sync leaves it, written below `out`."""
        self._write(self.moments[moment], self.root.stat().st_ino, out)
        return out

    def _write(self, kept: dict[int, Content], folder: int, out: Path) -> None:
        out.mkdir()
        entries = kept.get(folder, {})
        assert isinstance(entries, dict)
        for name, inode in entries.items():
            content = kept.get(inode, b"")
            if inode in self.folders:
                self._write(kept, inode, out / name)
            else:
                assert isinstance(content, bytes)
                (out / name).write_bytes(content)


@contextlib.contextmanager
def watched(root: Path) -> Iterator[Disk]:
    """The disk of everything that syncs inside the block."""
    disk, real = Disk(root), os.fsync

    def fsync(handle: int) -> Any:
        real(handle)
        disk.note(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        yield disk
    for handle in disk.held:
        os.close(handle)
