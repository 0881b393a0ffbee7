"""Errors that a user can fix: one line with the given value, what was expected and the fix."""

import contextlib
import difflib
import importlib.util
import sysconfig
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
LISTED = 12
LONGEST_REASON = 240
"""Characters of what a user's program says; ConfigDict's errors, for example, list all keys with their values."""
EXHAUSTED = "RESOURCE_EXHAUSTED"
"""In the message of XLA's error about too little memory."""


class UserError(ValueError):
    """A mistake in a config, a command or a data folder; the command line prints it and exits with status 2.

    The message is always one `printable` line, whatever names it quotes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def system_words(error: OSError, fix: str) -> str:
    """A system error in one line: what cannot be read or written, and why; `fix` says what to do once that is
    mended."""
    place = f" with {error.filename}" if error.filename else ""
    return (
        f"the system refuses{place} ({error.strerror or error}); expected a place that can be read or written and free "
        f"space; mend that, and {fix}"
    )


def reason_of(error: BaseException) -> str:
    """What an exception says, on one line; the name of its type if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def users_program(what: str, expected: str) -> Iterator[None]:
    """Whatever a user's program raises as one line, `what cannot be run (... at FILE:LINE); expected ...`; a
    `UserError` stays as it is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = f"{kind_and_reason(error)}{place_of(error)}"
        raise UserError(f"{what} cannot be run ({said}); expected {expected}") from error


def place_of(error: BaseException) -> str:
    """` at FILE:LINE` of the innermost call outside of this package and of installed ones; '' where there is none."""
    place = ""
    paths = sysconfig.get_paths()
    installed = (paths["purelib"], paths["platlib"], paths["stdlib"])
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if file.is_absolute() and not str(file).startswith(installed) and not file.is_relative_to(PACKAGE):
            place = f" at {file.name}:{line}"
    return place


def kind_and_reason(error: BaseException) -> str:
    """The type of an exception and what it says, of a long text the beginning."""
    return f"{type(error).__name__}: {textwrap.shorten(reason_of(error), LONGEST_REASON, placeholder=' ...')}"


def check_library(what: str, library: str, extra: str, otherwise: str = "") -> None:
    """Raises a `UserError` if a library of one of the package's extras, which `what` needs, is not installed."""
    if importlib.util.find_spec(library) is None:
        raise UserError(f"{what} needs {library}, not installed; pip install 'fdgjax[{extra}]'{otherwise}")


def printable(text: object) -> str:
    r"""The text on one line, printable in any UTF-8 terminal or file.

    Control characters, line breaks, marks that reverse the direction of text and lone surrogates are escaped (`\n`,
    `\u202e`); a byte of a file name that is not UTF-8 becomes `\xff`, as in the shell's `$'...'`. All other characters
    stay, so that escaping twice changes nothing.
    """
    words = str(text)
    return words if words.isprintable() else "".join(map(_escaped, words))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # Python's surrogate escape of a byte that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def example_of(names: Sequence[object]) -> str:
    """The first of several names, for a message: `a.txt`, or `a.txt and 3 more`."""
    return printable(names[0]) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def few(names: Sequence[str]) -> str:
    """The first names of many, and how many more there are."""
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def unknown(kind: str, got: str, known: Iterable[str], otherwise: str = "") -> UserError:
    """The error for a name that is not in `known`, suggesting the nearest one that is.

    Args:
      kind: what the name stands for, e.g. `"method"`.
      got: the name that was given.
      known: the names that exist; all are listed, unless there are more than `LISTED` and one is close to `got`.
      otherwise: what else is expected.
    """
    names = sorted(known)
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    if near and len(names) > LISTED:
        return UserError(
            f"unknown {kind} '{got}'; expected one of {len(names)} names{otherwise}; did you mean '{near[0]}'?"
        )
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{got}'; expected one of: {', '.join(names)}{otherwise}{hint}")
