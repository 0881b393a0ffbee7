"""What a search tunes: the values that a method declares for its hyperparameters, or those of `--tune`."""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fdgjax.config import read_config
from fdgjax.config.command_line import read_value
from fdgjax.config.make import typed
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.evaluation.figure_kinds import larger_is_better, table_scale
from fdgjax.evaluation.number_figures import NUMBER_FIGURES
from fdgjax.evaluation.probability_figures import figure_in
from fdgjax.evaluation.selection import ORACLE
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hyper import check_values, has_effect
from fdgjax.sweeps.share import Share
from fdgjax.utils.errors import UserError, unknown
from fdgjax.utils.registry import lookup

ACCURACY = "id_accuracy"
"""Each client's own model on its validation data, mean over the clients: the figure of a search that names no other."""
LOG = "log:"
TO = ".."


@dataclasses.dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, drawn uniformly, or uniformly in their logarithm; whole ones if both are
    `int`."""

    low: float
    high: float
    log: bool

    def __str__(self) -> str:
        return f"{LOG if self.log else ''}{self.low}{TO}{self.high}"

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Values = tuple[Any, ...] | Range
"""The values of a hyperparameter in a search."""


class Search(NamedTuple):
    """A search to run.

    config: the experiment. space: the values of each hyperparameter. out: the folder of the trials. trials: the largest
    number of trials. seed: the sampler's. pruning: whether trials are stopped early. words: the command that trains the
    config. jobs: processes that share the trials. share: this process's share; it continues the unfinished trials of
    that share, and any if there is only one share. figure: of the clients' held-out data, by which trials are compared.
    """

    config: ConfigDict
    space: Mapping[str, Values]
    out: Path
    trials: int
    seed: int
    pruning: bool
    words: Sequence[str]
    jobs: int = 1
    share: Share = Share(1, 1)
    figure: str = ACCURACY

    @property
    def sign(self) -> int:
        """1 for a figure of which larger values are better, else -1."""
        return 1 if larger_is_better(self.figure) else -1

    @property
    def scale(self) -> float:
        """By what the figure is multiplied in tables."""
        return table_scale(self.figure)

    @property
    def own(self) -> dict[str, Any]:
        """The config's own values of the tuned hyperparameters that have an effect, which the first trial has."""
        return drawn(self, lambda key, values: self.config.method[key])

    @property
    def total(self) -> int:
        """How many trials there are to run: no two have the same values."""
        apart = any(value not in self.space[key] for key, value in self.own.items())
        count = sum(1 for _ in itertools.islice(assignments(self), self.trials))
        return min(self.trials, count + apart)


def refuse_unseen(config: ConfigDict) -> None:
    """Raises a `UserError` for an experiment whose only figures are of the unseen domain."""
    chosen = read_config(config)
    if METHODS[chosen.method.name].unlabelled:
        raise UserError(
            f"search got '{chosen.method.name}', which learns without labels and is measured by probes on the unseen "
            "domain; expected a method whose clients hold out labelled data, such as fedavg"
        )
    if PROTOCOLS[chosen.data.protocol].labelled_server:
        raise UserError(
            f"search got config.data.protocol={chosen.data.protocol}, whose clients have no labels to compare trials "
            "by; expected one whose clients hold out labelled data, such as leave_one_out"
        )
    if chosen.selection == ORACLE:
        raise UserError(
            "search got config.selection=oracle, which looks at the unseen domain; expected last or validation"
        )


def check_figure(figure: str, task: str) -> str:
    """The figure; raises a `UserError` for one that is not of the clients' held-out data, or not of the task."""
    numeric = lookup("task", task, TASKS).numeric
    if (figure.partition("_")[2].removeprefix("all_") in NUMBER_FIGURES) != numeric:
        wanted = "id_rmse or id_r2" if numeric else ACCURACY
        raise UserError(f"--figure got '{figure}', which a {task} does not have; expected a figure such as {wanted}")
    name, plain = figure_in(figure), ("accuracy", *NUMBER_FIGURES)
    if figure in [f"{scope}_{one}" for one in plain for scope in ("id", "id_all")] or (
        name and figure in (f"id_{name}", f"id_all_{name}")
    ):
        return figure
    raise UserError(
        f"--figure got '{figure}'; expected one of the clients' held-out data, {ACCURACY}, id_all_accuracy, id_rmse, "
        "or id_ or id_all_ with an entry of config.figures, such as id_auroc: no search looks at the unseen domain"
    )


def space_of(config: ConfigDict, words: Sequence[str]) -> dict[str, Values]:
    """The values of each hyperparameter to be tuned; those that depend on others (`When`) come last.

    Args:
      config: the method's.
      words: `KEY` for the declared values, and the config's own if it is not among them; `KEY=A,B,...` or
        `KEY=[log:]LOW..HIGH` for others. None for all hyperparameters whose declared values are numbers.

    Raises:
      UserError: a key that is no hyperparameter, fewer than two values, or values that cannot be read or are out of
        bounds; a key that has no effect with the other values.
    """
    fields = {field.name: field for field in dataclasses.fields(METHODS[config.method.name].hyper) if field.metadata}
    found: dict[str, Values] = {}
    for word in words or fields:
        key, equals, text = word.partition("=")
        if key not in fields:
            raise unknown("hyperparameter of --tune", key, fields)
        values = read_values(config, key, text) if equals else declared_values(config, fields[key])
        if isinstance(values, Range) or (len(values) > 1 and (words or all(map(is_quantity, values)))):
            found[key] = values
        elif words:
            only = f"{'has' if equals else 'declares'} no other value than {values[0]!r}"
            raise UserError(f"--tune got '{word}', which {only}; expected several, such as {key}=A,B")
    space = {key: found[key] for key in sorted(found, key=lambda key: bool(fields[key].metadata["when"]))}
    return effective(config, space, asked=bool(words))


def effective(config: ConfigDict, space: Mapping[str, Values], asked: bool) -> dict[str, Values]:
    """The space without hyperparameters that never have an effect; raises a `UserError` for them if the user `asked`
    for them."""
    used = {key: values for key, values in space.items() if ever_applies(config, key, space)}
    if asked and (idle := [key for key in space if key not in used]):
        raise UserError(
            f"--tune got '{idle[0]}', which has no effect with the config's other values; expected it without, or the "
            "values on which that depends among those of --tune"
        )
    return used


def ever_applies(config: ConfigDict, key: str, space: Mapping[str, Values]) -> bool:
    """Whether the hyperparameter has an effect with the config's own values, or with one other value of another."""
    own = typed_method(config)
    others = [(other, value) for other, values in space.items() if other != key for value in examples(values)]
    changed = [own, *(dataclasses.replace(own, **{other: value}) for other, value in others)]
    return any(has_effect(h, key) for h in changed)


def examples(values: Values) -> tuple[Any, ...]:
    """All values of a list, or the ends of a range."""
    return (values.low, values.high) if isinstance(values, Range) else values


def declared_values(config: ConfigDict, field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    """The values that the method declares, and the config's own if it is not among them."""
    own, declared = config.method[field.name], field.metadata["search"]
    return (*declared, *([own] if own not in declared else []))


def read_values(config: ConfigDict, key: str, text: str) -> Values:
    """The values of `A,B,...` or `[log:]LOW..HIGH`; raises a `UserError` like `space_of`."""
    own, name = config.method[key], f"method.{key}"
    if TO in text and is_quantity(own):
        log = text.startswith(LOG)
        low, high = (read_value(name, end, own) for end in text.removeprefix(LOG).split(TO, 1))
        values: Values = Range(low, high, log)
        if not low < high or (log and low <= 0):
            raise UserError(f"--tune got '{key}={text}'; expected LOW..HIGH with LOW < HIGH, and 0 < LOW after {LOG}")
    else:
        values = tuple(dict.fromkeys(read_value(name, word, own) for word in text.split(",")))
    for value in examples(values):
        check_values(dataclasses.replace(typed_method(config), **{key: value}))
    return values


def is_quantity(value: object) -> bool:
    """Whether a value is a number, not a switch or a word."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def typed_method(config: ConfigDict) -> Any:
    """The config's hyperparameters."""
    return typed(config.to_dict()).method


def drawn(search: Search, draw: Callable[[str, Values], Any]) -> dict[str, Any]:
    """Values of one trial: `draw` is called for each hyperparameter that has an effect with those before it."""
    h, values = typed_method(search.config), {}
    for key, choices in search.space.items():
        if has_effect(h, key):
            values[key] = draw(key, choices)
            h = dataclasses.replace(h, **{key: values[key]})
    return values


def drawn_at_random(search: Search, generator: random.Random) -> dict[str, Any]:
    """Values of one trial, drawn uniformly."""

    def draw(key: str, values: Values) -> Any:
        del key
        if not isinstance(values, Range):
            return generator.choice(values)
        low, high = examples(values)
        if values.log:
            found = math.exp(generator.uniform(math.log(low), math.log(high)))
            return round(found) if isinstance(values.low, int) else min(max(found, low), high)
        return generator.randint(low, high) if isinstance(values.low, int) else generator.uniform(low, high)

    return drawn(search, draw)


def assignments(search: Search) -> Iterator[dict[str, Any]]:
    """All values that trials can have; endless if one of them has a range of real numbers."""

    def following(h: Any, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
        if not keys:
            yield {}
            return
        key, *rest = keys
        if not has_effect(h, key):
            yield from following(h, rest)
            return
        for value in listed(search.space[key]):
            for other in following(dataclasses.replace(h, **{key: value}), rest):
                yield {key: value, **other}

    return following(typed_method(search.config), list(search.space))


def listed(values: Values) -> Iterator[Any]:
    """The values one after another; of a range of real numbers, ever closer ones."""
    if not isinstance(values, Range):
        return iter(values)
    if isinstance(values.low, int):
        return iter(range(values.low, int(values.high) + 1))
    return (values.low + (values.high - values.low) / n for n in itertools.count(1))


def with_idle(search: Search, values: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's values, and those of hyperparameters that thereby have no effect (`When.otherwise`)."""
    h = dataclasses.replace(typed_method(search.config), **values)
    whens = {field.name: field.metadata.get("when") for field in dataclasses.fields(h)}
    idle = {
        key: when.otherwise
        for key, when in whens.items()
        if when and when.otherwise is not None and not when.applies(h) and getattr(h, key) != when.otherwise
    }
    return {**values, **idle}
