"""Federated domain generalization in JAX: a method is a value made of pure functions, the rest is written once.

From Python: `fdgjax.experiment("hfedf:rotated_digits", rounds=20).train()` (docs/python.md). Nothing is loaded before
one of the names below is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdgjax import aggregation
    from fdgjax.api import (
        Entry,
        Result,
        Trainer,
        UserError,
        choose,
        experiment,
        open_run,
        register_augmentation,
        register_data,
        register_figure,
        register_method,
        register_model,
        register_rule,
    )

    __version__: str

__all__ = [
    "Entry",
    "Result",
    "Trainer",
    "UserError",
    "__version__",
    "aggregation",
    "choose",
    "experiment",
    "open_run",
    "register_augmentation",
    "register_data",
    "register_figure",
    "register_method",
    "register_model",
    "register_rule",
]


def __getattr__(name: str) -> Any:
    """A name of `__all__`, loaded when it is asked for; `__version__` from the installed package's metadata."""
    if name not in __all__:
        raise AttributeError(f"module 'fdgjax' has no attribute '{name}'")
    if name == "__version__":
        from importlib import metadata

        return metadata.version("fdgjax")
    from importlib import import_module

    return import_module("fdgjax.aggregation") if name == "aggregation" else getattr(import_module("fdgjax.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
