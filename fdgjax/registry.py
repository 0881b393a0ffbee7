"""Named entries: one line registers a method, a rule, a model or a data set everywhere."""

from collections.abc import Mapping
from typing import TypeVar

from fdgjax.errors import unknown

Item = TypeVar("Item")


def lookup(kind: str, name: str, entries: Mapping[str, Item]) -> Item:
    """The entry called `name`; a `UserError` naming the nearest one where there is none."""
    if name not in entries:
        raise unknown(kind, name, entries)
    return entries[name]
