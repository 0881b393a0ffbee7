"""The Python interface: what `import fdgjax` gives (docs/python.md)."""

from fdgjax.api.experiments import Trainer, experiment, open_run
from fdgjax.api.results import Result
from fdgjax.config.registering import register_data, register_method, register_model
from fdgjax.errors import UserError
from fdgjax.methods import Entry

__all__ = [
    "Entry",
    "Result",
    "Trainer",
    "UserError",
    "experiment",
    "open_run",
    "register_data",
    "register_method",
    "register_model",
]
