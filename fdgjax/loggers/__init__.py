"""Loggers, which record a run's numbers outside its own files. Each file of this folder with an `ENTRY` is a logger.

`metrics.jsonl` stays the only source of truth: a logger's records can be remade from it, and are never read back.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from fdgjax.loggers.base import Logger, RunInfo, Sink
from fdgjax.loggers.many import Log, open_loggers
from fdgjax.utils.errors import check_library
from fdgjax.utils.registry import lookup
from fdgjax.utils.words import words_of

__all__ = ["LOGGERS", "Log", "Logger", "RunInfo", "Sink", "check_loggers", "loggers_of", "open_loggers"]


def logger_entries() -> Mapping[str, Logger]:
    """The entries of all loggers' files, by name."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    entries: list[Logger] = [module.ENTRY for module in modules if hasattr(module, "ENTRY")]
    return {entry.name: entry for entry in entries}


LOGGERS: Mapping[str, Logger] = logger_entries()


def loggers_of(words: str) -> list[Logger]:
    """The loggers named by comma-separated words, each once; empty for an empty text.

    Raises:
      UserError: a word does not name a logger.
    """
    return [lookup("logger", name, LOGGERS) for name in dict.fromkeys(words_of(words))]


def check_loggers(words: str) -> None:
    """Raises a `UserError` for a logger whose library is not installed."""
    for logger in loggers_of(words):
        check_library(f"config.writers={logger.name}", logger.package, logger.name, f", or leave '{logger.name}' out")
