"""Which process runs which cell, and its outcome: files in a sweep's folder that several processes share."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdgjax.errors import UserError
from fdgjax.files import write_text


def notes(out: Path) -> Path:
    """The folder of locks, failures, and the runs' logs."""
    folder = out / ".sweep"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def claim(out: Path, name: str, wait: bool = False) -> Iterator[bool]:
    """Yields whether this process alone holds `name` until the end of the block; with `wait`, waits until it does.

    A lock of the operating system on an open file: it ends with its process, however that ends, so that no
    stale claim remains.

    Raises:
      UserError: a file system without locks.
    """
    with (notes(out) / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise UserError(
                f"--out {out} is on a file system without locks ({error}); expected one that has them"
            ) from error
        yield True


def summary_of(out: Path, name: str) -> dict[str, Any]:
    """The summary of a finished run; empty for others."""
    path = out / name / "summary.json"
    summary: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return summary


def is_open(out: Path, name: str) -> bool:
    """Whether the cell is neither finished nor failed."""
    return not (out / name / "summary.json").exists() and not failure_of(out, name)


def note_failure(out: Path, name: str, reason: str) -> None:
    """The cell is not to be tried again until `forget_failure`; the first line of `reason` is shown."""
    write_text(notes(out) / f"{name}.failed", reason)


def failure_of(out: Path, name: str) -> str:
    """Why the cell failed, '' where it did not."""
    path = notes(out) / f"{name}.failed"
    return path.read_text() if path.exists() else ""


def forget_failure(out: Path, name: str) -> None:
    """The cell is to be tried again."""
    (notes(out) / f"{name}.failed").unlink(missing_ok=True)
