"""The methods: every file of this folder is one, and its `ENTRY` registers it (command line, tests, tables).

The names below are the building blocks of a user-defined method, beside `fdgjax.contract`.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from fdgjax.methods.fedavg import FedAvg, fedavg
from fdgjax.methods.parts.entry import Entry
from fdgjax.methods.parts.extend import Extended, RowExtension, extend
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import Registry

__all__ = ["METHODS", "Entry", "Extended", "FedAvg", "RowExtension", "When", "extend", "fedavg", "hyper"]


def method_entries() -> Mapping[str, Entry]:
    """The entries of all method files, by name.

    Raises:
      UserError: a file without an entry, or with one of another name: of two entries of one name the last would stay.
    """
    return {each.name: entry_of(each.name) for each in pkgutil.iter_modules(__path__) if not each.ispkg}


def entry_of(name: str) -> Entry:
    """The entry of a method file."""
    entry = getattr(importlib.import_module(f"{__name__}.{name}"), "ENTRY", None)
    if not isinstance(entry, Entry) or entry.name != name:
        got = f"ENTRY of the name '{entry.name}'" if isinstance(entry, Entry) else "no ENTRY"
        raise UserError(
            f'fdgjax/methods/{name}.py got {got}; expected ENTRY = Entry("{name}", ...), or code that several methods '
            "share in fdgjax/methods/parts"
        )
    return entry


METHODS: Registry[Entry] = Registry("method", method_entries())
