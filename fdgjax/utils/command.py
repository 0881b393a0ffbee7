"""What every command does around its work: mistakes and refusals of the machine end in one line, never a traceback."""

import contextlib
import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fdgjax.utils.errors import UserError, printable

MISTAKE = 2
"""The exit status of a mistake in the input, or of a machine that refuses."""
CLOSED = 128 + signal.SIGPIPE
"""The shell's status of a program whose reader has gone."""

Main = Callable[[Sequence[str]], int]


def command(main: Main) -> Main:
    """A command's `main(argv)`, which returns its exit status, behind this door.

    A `UserError`, a folder that cannot be read or written, a full disk and too little memory are one line on standard
    error and status `MISTAKE`; a closed pipe is silent and `CLOSED`. Characters that the terminal lacks are replaced.
    """

    @functools.wraps(main)
    def guarded(argv: Sequence[str]) -> int:
        prepare_streams()
        try:
            status = main(argv)
            sys.stdout.flush()
        except BrokenPipeError:
            leave_stdout()
            return CLOSED
        except UserError as error:
            return refuse(str(error))
        except MemoryError as error:
            return refuse(f"out of memory ({error}); expected enough for the experiment; make it smaller")
        except OSError as error:
            place = f" with {error.filename}" if error.filename else ""
            return refuse(
                f"the system refuses{place} ({error.strerror or error}); expected a place that can be read or written "
                "and free space; mend that, and repeat the command"
            )
        return status

    return guarded


def refuse(line: str) -> int:
    """Prints one line on standard error, where there is one."""
    leave_stdout_if_broken()
    with contextlib.suppress(OSError):
        print(f"fdgjax: {printable(line)}", file=sys.stderr, flush=True)
    return MISTAKE


def prepare_streams() -> None:
    """Standard output and error take any character; a missing one takes everything silently."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_stdout_if_broken() -> None:
    """Python flushes standard output once more at its end: what cannot be written is given up now."""
    try:
        sys.stdout.flush()
    except OSError:
        leave_stdout()


def leave_stdout() -> None:
    """Standard output goes nowhere from here on."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
