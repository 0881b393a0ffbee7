"""The trials of a search as `search.md` and `search.csv`: held-out accuracy of the source domains, nothing of the
target."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from fdgjax.evaluation import short_names
from fdgjax.evaluation.figure_kinds import in_table
from fdgjax.sweeps.space import Search, with_idle
from fdgjax.utils.files import csv_text, write_text
from fdgjax.utils.markdown import markdown_table

BASELINE = "baseline"
"""The user attribute of the trial with the config's own values."""
ERROR = "error"
"""The user attribute of a failed trial that says why it failed."""
WORDS = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "given up",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "unfinished",
    TrialState.WAITING: "unfinished",
}


def write_table(search: Search, found: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Writes both tables of the trials, the best first; returns the best trial, None if none is complete."""
    trials = sorted(found, key=lambda trial: rank(trial, search.sign))
    best = trials[0] if trials and trials[0].state == TrialState.COMPLETE else None
    keys = list(search.space)
    drawn = [key for key in keys if any(key in values_in(search, trial) for trial in trials)]
    shown = [markdown_row(search, trial, drawn) for trial in trials]
    lines = markdown_table(["trial", "outcome", "validation", *drawn], shown, right=["validation"])
    write_text(
        search.out / "search.md", "\n".join([*lines, *(verdict_lines(search, best, trials) if best else [])]) + "\n"
    )
    rows = [["trial", "outcome", "validation", *keys], *(row(search, trial) for trial in trials)]
    write_text(search.out / "search.csv", csv_text(rows))
    return best


def verdict_lines(search: Search, best: FrozenTrial, trials: Sequence[FrozenTrial]) -> list[str]:
    """The best trial beside the config's own values, and the command that trains it."""
    changed = {} if BASELINE in best.user_attrs else with_idle(search, best.params)
    command = shlex.join([*search.words, *(f"--config.method.{key}={value}" for key, value in changed.items())])
    lines = ["", f"Best on the sources' held-out data, {trial_folder_name(best.number)}:", "", f"    {command}", ""]
    own = next((trial for trial in trials if BASELINE in trial.user_attrs), None)
    if own is None or own.number == best.number:
        return [*lines, "These are the config's own values."] if own else lines
    if own.value is None or best.value is None:
        return [*lines, f"The config's own values, {trial_folder_name(own.number)}: {outcome(own)}."]
    mine, first = (
        f"{in_table(search.figure, search.scale * x, digits=2)}{unit(search)}" for x in (own.value, best.value)
    )
    gain = in_table(search.figure, search.scale * (best.value - own.value), "+", digits=2)
    return [
        *lines,
        f"The config's own values, {trial_folder_name(own.number)}: {mine}, the best's {first} ({gain}). The best of "
        "several figures is partly luck: compare the two with seeds that the search did not use.",
    ]


def trial_folder_name(number: int) -> str:
    """The folder of a trial."""
    return f"trial_{number:04d}"


def rank(trial: FrozenTrial, sign: int) -> tuple[int, float, int]:
    """The sorting key: complete trials, the best first, then the others, ties by number; sign: `Search.sign`."""
    value = result_of(trial)
    return (1, 0.0, trial.number) if value is None else (0, -sign * value, trial.number)


def result_of(trial: FrozenTrial) -> float | None:
    """The figure of a complete trial; None of others: what Optuna has of one given up is of a round on the way."""
    return trial.value if trial.state == TrialState.COMPLETE else None


def values_in(search: Search, trial: FrozenTrial) -> Mapping[str, Any]:
    """The values of the hyperparameters that have an effect in a trial."""
    return search.own if BASELINE in trial.user_attrs else trial.params


def row(search: Search, trial: FrozenTrial) -> list[str]:
    """A trial's cells; nothing for a hyperparameter without an effect on it."""
    values, result = values_in(search, trial), result_of(trial)
    figure = "" if result is None else in_table(search.figure, search.scale * result, digits=2)
    drawn = (str(values.get(key, "")) for key in search.space)
    return [trial_folder_name(trial.number), outcome(trial), figure, *drawn]


def markdown_row(search: Search, trial: FrozenTrial, keys: Sequence[str]) -> list[str]:
    """A trial's cells for reading: short numbers, and a word beside the config's own values."""
    values = values_in(search, trial)
    name, *rest = row(search, trial)[:3]
    name += " (the config's own)" if BASELINE in trial.user_attrs else ""
    return [name, *rest, *(shown(values[key]) if key in values else "" for key in keys)]


def shown(value: object) -> str:
    """A value in a few characters."""
    word = str(value)
    return f"{value:.3g}" if isinstance(value, float) and len(word) > 8 else word


def outcome(trial: FrozenTrial) -> str:
    """What became of a trial, in a few words."""
    words = WORDS[trial.state] + (f" after round {trial.last_step}" if trial.state == TrialState.PRUNED else "")
    reason = trial.user_attrs.get(ERROR, "").partition("\n")[0]
    return f"{words}: {reason}" if reason else words


def unit(search: Search) -> str:
    """` %` of a figure that is written times 100, a share; nothing of others, such as a loss."""
    return " %" if search.scale > 1 else ""


def written(value: float, search: Search) -> str:
    """A figure of held-out data, such as `validation 81.20 %` or `validation AUROC 90.30 %`."""
    name = short_names().get(search.figure.replace("id_all_", "id_"), "").removeprefix("id").strip()
    number = in_table(search.figure, search.scale * value, digits=2)
    return f"validation {f'{name} ' if name else ''}{number}{unit(search)}"


def result_in_words(trial: FrozenTrial, search: Search) -> str:
    """A trial's result, in a few words."""
    result = result_of(trial)
    return outcome(trial) if result is None else written(result, search)
