"""Errors that a user can fix: one line with what was got, what was expected and the fix."""

import difflib
from collections.abc import Iterable

LISTED = 12


class UserError(ValueError):
    """A mistake in a config, a command or a data folder; the command line prints it and exits with status 2."""


def unknown(kind: str, got: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in `known`, suggesting the nearest one that is.

    Args:
      kind: what the name stands for, e.g. `"method"`.
      got: the name that was given.
      known: the names that exist; all are listed unless there are more than `LISTED` and one is near.
    """
    names = sorted(known)
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    if near and len(names) > LISTED:
        return UserError(f"unknown {kind} '{got}'; expected one of {len(names)} names; did you mean '{near[0]}'?")
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} '{got}'; expected one of: {', '.join(names)}{hint}")
