"""What a search tunes: the values that a method declares for its hyperparameters."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fdgjax.config import read_config
from fdgjax.methods import METHODS
from fdgjax.sweeps.share import Share
from fdgjax.utils.errors import UserError, unknown


class Search(NamedTuple):
    """A search to run.

    config: the experiment. space: the values of each hyperparameter. out: the folder of the trials. trials: the largest
    number of trials. seed: the sampler's. pruning: whether trials are stopped early. words: the arguments of `fdgjax
    train` that give the config. jobs: processes that share the trials. share: this process's share; it continues the
    unfinished trials of that share, and any if there is only one share.
    """

    config: ConfigDict
    space: Mapping[str, tuple[Any, ...]]
    out: Path
    trials: int
    seed: int
    pruning: bool
    words: Sequence[str]
    jobs: int = 1
    share: Share = Share(1, 1)

    @property
    def total(self) -> int:
        """How many trials there are to run: no two have the same values."""
        return min(self.trials, math.prod(map(len, self.space.values())))


def refuse_unseen(config: ConfigDict) -> None:
    """Raises a `UserError` for an experiment whose only figures are of the unseen domain."""
    typed = read_config(config)
    if METHODS[typed.method.name].unlabelled:
        raise UserError(
            f"search got '{typed.method.name}', which learns without labels and is measured by probes on the unseen "
            "domain; expected a method whose clients hold out labelled data, such as fedavg"
        )
    if typed.selection == "oracle":
        raise UserError(
            "search got config.selection=oracle, which looks at the unseen domain; expected last or validation"
        )


def space_of(config: ConfigDict, keys: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The values of each hyperparameter to be tuned: the declared ones, and the config's own if it is not among them.

    Args:
      config: the method's.
      keys: the hyperparameters to tune; empty for all whose declared values are numbers.

    Raises:
      UserError: a key that is no hyperparameter, or has fewer than two values.
    """
    fields = {field.name: field for field in dataclasses.fields(METHODS[config.method.name].hyper)}
    found = {}
    for key in keys or fields:
        if key not in fields:
            raise unknown("hyperparameter of --tune", key, [name for name, field in fields.items() if field.metadata])
        declared = fields[key].metadata.get("search", ())
        own = config.method[key]
        values = (*declared, *([own] if own not in declared else []))
        if len(values) > 1 and (keys or all(map(is_quantity, values))):
            found[key] = values
        elif keys:
            raise UserError(f"--tune got '{key}', which declares no other value than {own!r}; expected one that does")
    return found


def is_quantity(value: object) -> bool:
    """Whether a value is a number, not a switch or a word."""
    return isinstance(value, int | float) and not isinstance(value, bool)
