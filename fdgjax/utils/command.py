"""The wrapper of every command: user mistakes and system errors end in one line, never in a traceback."""

import argparse
import contextlib
import functools
import io
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fdgjax.utils.errors import EXHAUSTED, UserError, printable, system_words

MISTAKE = 2
"""The exit status after a mistake in the input or a system error."""
CLOSED = 128 + signal.SIGPIPE
"""The shell's exit status for a program whose output pipe was closed."""
STOPPED = 128 + signal.SIGINT
"""The shell's exit status for a program ended by Ctrl-C."""

SMALLER = "expected enough for the experiment; make it smaller, as by a lower config.batch_size"
"""What to do about too little memory."""

Main = Callable[[Sequence[str]], int]


def command(main: Main) -> Main:
    """Wraps a command's `main(argv)`, which returns its exit status, so that expected errors need no traceback.

    A `UserError`, a folder that cannot be read or written, a full disk and too little memory each print one line on
    standard error and give status `MISTAKE`; Ctrl-C prints one line and gives `STOPPED`, a closed pipe prints nothing
    and gives `CLOSED`. Characters that the terminal cannot show are escaped.
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
        except SystemExit as end:
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            leave_stdout()  # rich answers a closed pipe by leaving with 1
            return CLOSED
        except KeyboardInterrupt:
            refuse("stopped")
            return STOPPED
        except UserError as error:
            return refuse(str(error))
        except MemoryError as error:
            return refuse(f"out of memory ({error}); {SMALLER}")
        except OSError as error:
            return refuse(system_words(error, "repeat the command"))
        except RuntimeError as error:
            # XLA's own error class, without loading JAX for it.
            if EXHAUSTED not in str(error):
                raise
            return refuse(f"out of memory ({str(error).partition(chr(10))[0]}); {SMALLER}")
        return status

    return guarded


def refuse(line: str) -> int:
    """Prints one line on standard error, if it can be written, and returns the exit status."""
    leave_stdout_if_broken()
    with contextlib.suppress(OSError):
        print(f"fdgjax: {printable(line)}", file=sys.stderr, flush=True)
    return MISTAKE


def prepare_streams() -> None:
    """Makes standard output and error accept any character; a missing stream is replaced by the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_stdout_if_broken() -> None:
    """Discards standard output if it cannot be written, as Python would fail when it flushes it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        leave_stdout()


def leave_stdout() -> None:
    """Sends standard output to the null device from here on."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)


def with_words(files: Iterable[str]) -> list[str]:
    """`--with FILE` for each file, as words of a command."""
    return [word for file in files for word in ("--with", file)]


def parser_of(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of a subcommand, described by the first line of its module's docstring."""
    return argparse.ArgumentParser(prog=f"fdgjax {name}", description=str(doc).partition("\n")[0])


def whole_number(word: str, least: int = 0) -> int:
    """The type of an argument that is a whole number, at least `least`."""
    if not word.isdecimal() or int(word) < least:
        raise argparse.ArgumentTypeError(f"got '{word}'; expected a whole number from {least}")
    return int(word)


def seconds(word: str) -> float:
    """The type of an argument that is a number of seconds, 0 for none.

    Raises:
      argparse.ArgumentTypeError: another word.
    """
    with contextlib.suppress(ValueError):
        if 0 <= float(word) < math.inf:
            return float(word)
    raise argparse.ArgumentTypeError(f"got '{word}'; expected seconds, from 0")


def positive_number(word: str) -> int:
    """The type of an argument that is a whole number, at least 1."""
    return whole_number(word, least=1)
