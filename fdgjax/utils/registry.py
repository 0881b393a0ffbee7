"""Registries of named entries, such as methods, rules, models and data sets."""

import contextlib
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from fdgjax.utils.errors import PACKAGE, UserError, unknown

Item = TypeVar("Item")

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""A user-defined name; it becomes part of folder names, and of `METHOD:PRESET` on the command line."""


def lookup(kind: str, name: str, entries: Mapping[str, Item]) -> Item:
    """The entry called `name`; if there is none, raises a `UserError` that suggests the nearest name, and of a
    `Registry` says how a user's program adds one."""
    if name not in entries:
        raise unknown(
            kind, name, entries, ", or of your own by fdgjax --with FILE" if isinstance(entries, Registry) else ""
        )
    return entries[name]


class Registry(dict[str, Item]):
    """A registry that a user's program may add to.

    kind: what an entry is, in words. own: the names of the package's entries. origins: for each added entry, the file
    of the program that added it; '' if it was not added by a file. lock, lenders, replaced: for `lent`: the items that
    open blocks add, by name, and the entries that stood there before.
    """

    def __init__(self, kind: str, own: Mapping[str, Item]) -> None:
        super().__init__(own)
        self.kind = kind
        self.own = frozenset(own)
        self.origins: dict[str, str] = {}
        self.lock = threading.Lock()
        self.lenders: dict[str, list[Item]] = {}
        self.replaced: dict[str, Item] = {}


def register(entries: Registry[Item], name: str, item: Item, origin: str | None = None) -> str:
    """Adds an entry, or replaces one that a program added before; returns its name.

    Args:
      entries: the registry.
      name: letters, digits, `_`, `-` and `.`.
      item: the entry.
      origin: the file that adds it; None for the file of the caller outside this package.

    Raises:
      UserError: an invalid name, or the name of a different entry of the package.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(
            f"the name of a {entries.kind} got {name!r}; expected letters, digits, '_', '-' and '.', such as 'mine'"
        )
    if name in entries.own:
        if entries[name] is not item:
            raise UserError(
                f"the {entries.kind} '{name}' is the package's own; expected another name for one of your own, such as "
                f"'my_{name}'"
            )
        return name
    entries[name] = item
    entries.origins[name] = calling_file() if origin is None else origin
    return name


@contextlib.contextmanager
def lent(entries: Registry[Item], added: Mapping[str, Item]) -> Iterator[None]:
    """Adds entries to the registry until the end of the block, or of the last block that adds one of the same name, as
    blocks of several threads may; then the registry is as it was before the first."""
    with entries.lock:
        for name, item in added.items():
            if name not in entries.lenders and name in entries:
                entries.replaced[name] = entries[name]
            entries.lenders.setdefault(name, []).append(item)
            entries[name] = item
    try:
        yield
    finally:
        with entries.lock:
            for name, item in added.items():
                entries.lenders[name].remove(item)
                if entries.lenders[name]:
                    entries[name] = entries.lenders[name][-1]
                    continue
                del entries.lenders[name]
                entries.pop(name, None)
                if name in entries.replaced:
                    entries[name] = entries.replaced.pop(name)


def calling_file() -> str:
    """The file of the program that called this package; '' for an interactive prompt or a notebook."""
    frame = sys._getframe(1)
    while frame.f_back and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename).absolute()
    return str(file) if file.is_file() else ""
