"""The round that a run reports, and the data used to select it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fdgjax.data.numeric_labels import TASKS
from fdgjax.evaluation import short_names
from fdgjax.evaluation.metrics import Record, is_evaluated
from fdgjax.evaluation.probability_figures import FIGURES
from fdgjax.utils.registry import lookup


class Selection(NamedTuple):
    """A selection rule: the round it chooses among those evaluated, the data it looks at, and the figures of which it
    needs one; () for none."""

    choose: Callable[[Sequence[Record]], Record]
    looks_at: str
    needs: tuple[str, ...] = ()


HELD_OUT = "held-out data of the source domains"
"""What the validation rules look at."""


def best(figure: str, larger: bool = True) -> Callable[[Sequence[Record]], Record]:
    """The first round with the largest value of a figure, or with the smallest, of those that have it and whose
    predictions are not NaN; where none has, the last round."""
    sign = 1 if larger else -1

    def choose(rounds: Sequence[Record]) -> Record:
        known = [one for one in rounds if not math.isnan(one.get(figure, math.nan))]
        return max(known, key=lambda one: sign * one[figure]) if known else rounds[-1]

    return choose


def accuracies(scope: str) -> tuple[str, str]:
    """The figures of how right predictions are: of classes, of numbers."""
    return f"{scope}_accuracy", f"{scope}_rmse"


def accuracy_key(task: str, scope: str) -> str:
    """The key of the main figure of a task, an entry of `fdgjax.data.numeric_labels.TASKS`; raises a `UserError` for
    another word."""
    return accuracies(scope)[lookup("task", task, TASKS).numeric]


def most_accurate(scope: str) -> Callable[[Sequence[Record]], Record]:
    """Chooses the first round with the largest accuracy, or with the smallest RMSE of predicted numbers."""
    accuracy, error = accuracies(scope)

    def choose(rounds: Sequence[Record]) -> Record:
        numbers = any(error in one for one in rounds)
        return best(error if numbers else accuracy, larger=not numbers)(rounds)

    return choose


ORACLE = "oracle"
"""The rule that chooses by the labels of the unseen domain."""
RULES: Mapping[str, Selection] = {
    "last": Selection(lambda rounds: rounds[-1], "nothing"),
    "validation": Selection(most_accurate("id"), HELD_OUT, accuracies("id")),
    "validation_by_size": Selection(most_accurate("id_all"), HELD_OUT, accuracies("id_all")),
    ORACLE: Selection(
        most_accurate("ood"), "labels of the target domain: an upper bound, no result", accuracies("ood")
    ),
}
"""The rules that need no figure of `config.figures`, by name."""
BY_FIGURE: Mapping[str, str] = {"validation": "id", "validation_by_size": "id_all"}
"""The rules that can choose by such a figure, too, as `validation:auroc`, and the scope that they look at."""


class Selections(Mapping[str, Selection]):
    """All rules by name: `RULES`, and each of `BY_FIGURE` with each of `FIGURES` that are registered by now."""

    def __getitem__(self, name: str) -> Selection:
        rule, by, of = name.partition(":")
        if not by:
            return RULES[rule]
        key = f"{BY_FIGURE[rule]}_{of}"
        return Selection(best(key, FIGURES[of].larger), HELD_OUT, (key,))

    def __iter__(self) -> Iterator[str]:
        yield from RULES
        yield from (f"{rule}:{name}" for rule in BY_FIGURE for name in FIGURES)

    def __len__(self) -> int:
        return len(RULES) + len(BY_FIGURE) * len(FIGURES)


SELECTIONS = Selections()


def reported(records: Sequence[Record], rule: str) -> Record:
    """The record of the round that a rule selects; empty before the first evaluation.

    Raises:
      UserError: no rule of this name.
    """
    evaluated = [record for record in records if is_evaluated(record)]
    return lookup("selection", rule, SELECTIONS).choose(evaluated) if evaluated else {}


def has_needed(record: Record, selection: Selection) -> bool:
    """Whether a record has a figure that the rule needs, where it needs one."""
    return not selection.needs or any(one in record for one in selection.needs)


def judges(records: Sequence[Record], rule: str) -> bool:
    """Whether a rule can compare rounds by any of these records; else it reports the last one."""
    return any(has_needed(record, lookup("selection", rule, SELECTIONS)) for record in records)


def ledger(evaluated: Sequence[Record], used: str) -> dict[str, Any]:
    """What each selection rule would report, without rules whose figure is missing, and without the oracle and the
    rules by figures of probabilities unless it is the run's own rule.

    Args:
      evaluated: records of the rounds that were evaluated, in order; of none, no rule reports anything.
      used: the rule whose round is the run's result.
    """
    entries: dict[str, Any] = {"used": used}
    for name, selection in SELECTIONS.items():
        asked = name == used or not (name == ORACLE or ":" in name)
        if asked and evaluated and all(has_needed(record, selection) for record in evaluated):
            record = selection.choose(evaluated)
            figures = {key: record[key] for key in ("round", *short_names()) if key in record}
            entries[name] = figures | {"looks_at": selection.looks_at}
    return entries
