"""The Python interface: what `import fdgjax` gives (docs/python.md)."""

from fdgjax.api.choose import choose
from fdgjax.api.results import Result
from fdgjax.api.trainer import Trainer, experiment, open_run
from fdgjax.config.register import (
    register_augmentation,
    register_data,
    register_figure,
    register_method,
    register_model,
    register_rule,
)
from fdgjax.methods import Entry
from fdgjax.utils.errors import UserError

__all__ = [
    "Entry",
    "Result",
    "Trainer",
    "UserError",
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
