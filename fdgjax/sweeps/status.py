"""The status of a cell in a sweep's folder: held by a process, finished, or failed and why."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdgjax.run.records import Workdir, finished
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import FOREVER, NoLocksError, lock, write_text

LOGGER = logging.getLogger(__name__)


def notes(out: Path) -> Path:
    """The folder of locks, failures, and the runs' logs."""
    folder = out / ".sweep"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def hold(out: Path, name: str, wait: bool = False) -> Iterator[bool]:
    """Yields whether this process alone holds `name` until the end of the block; with `wait`, waits until it does.

    On a file system without locks it always yields True; see `refuse_without_locks`, and the warning of each run.

    Raises:
      OSError: the lock's file cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            mine = held.enter_context(lock(notes(out) / f"{name}.lock", FOREVER if wait else 0))
        except NoLocksError:
            mine = True
        yield mine


def refuse_without_locks(out: Path) -> None:
    """Raises a `UserError` on a file system without locks, on which several processes could enter the same run."""
    try:
        with lock(notes(out) / ".jobs.lock"):
            pass
    except NoLocksError as error:
        raise UserError(
            f"--jobs got several processes, and --out {out} is on a file system without locks ({error}); expected one "
            "process there: leave --jobs out, or give each its own --shard"
        ) from None


def summary_of(out: Path, name: str) -> dict[str, Any]:
    """The summary of a finished run; empty for others."""
    return finished(Workdir(out / name), LOGGER.warning)


def is_open(out: Path, name: str) -> bool:
    """Whether the cell is neither finished nor failed."""
    return not summary_of(out, name) and not failure_of(out, name)


def note_failure(out: Path, name: str, reason: str) -> None:
    """Marks the cell as failed, so that it is not tried again until `forget_failure`; the first line of `reason` is
    shown."""
    write_text(notes(out) / f"{name}.failed", reason)


def failure_of(out: Path, name: str) -> str:
    """Why the cell failed, '' if it did not."""
    with contextlib.suppress(FileNotFoundError):  # another process may forget it meanwhile
        return (notes(out) / f"{name}.failed").read_text()
    return ""


def failure_line(out: Path, name: str) -> str:
    """Why the cell failed in one line, '' if it did not."""
    return failure_of(out, name).partition("\n")[0]


def forget_failure(out: Path, name: str) -> None:
    """Removes the mark of a failure, so that the cell is tried again."""
    (notes(out) / f"{name}.failed").unlink(missing_ok=True)
