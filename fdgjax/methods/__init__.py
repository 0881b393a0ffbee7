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
from fdgjax.utils.registry import Registry

__all__ = ["METHODS", "Entry", "Extended", "FedAvg", "RowExtension", "When", "extend", "fedavg", "hyper"]


def method_entries() -> Mapping[str, Entry]:
    """The entries of all method files, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__) if not each.ispkg
    )
    entries: list[Entry] = [module.ENTRY for module in modules]
    return {entry.name: entry for entry in entries}


METHODS: Registry[Entry] = Registry("method", method_entries())
