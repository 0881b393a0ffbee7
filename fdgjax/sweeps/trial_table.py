"""The trials of a search as `search.md` and `search.csv`: held-out accuracy of the source domains, nothing of the
target."""

import csv
import io
import shlex
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from fdgjax.sweeps.space import Search
from fdgjax.utils.files import write_text

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
    trials = sorted(found, key=rank)
    best = trials[0] if trials and trials[0].state == TrialState.COMPLETE else None
    keys = list(search.space)
    lines = [
        f"| trial | outcome | validation | {' | '.join(keys)} |",
        f"|---|---|--:|{'---|' * len(keys)}",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row(trial, keys))} |" for trial in trials),
    ]
    if best:
        chosen = [f"--config.method.{key}={best.params[key]}" for key in keys]
        command = shlex.join(["fdgjax", "train", *search.words, *chosen])
        lines += ["", f"Best on the sources' held-out data, {trial_folder_name(best.number)}:", "", f"    {command}"]
    write_text(search.out / "search.md", "\n".join(lines) + "\n")
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(
        [["trial", "outcome", "validation", *keys], *(row(trial, keys) for trial in trials)]
    )
    write_text(search.out / "search.csv", stream.getvalue())
    return best


def trial_folder_name(number: int) -> str:
    """The folder of a trial."""
    return f"trial_{number:04d}"


def rank(trial: FrozenTrial) -> tuple[int, float, int]:
    """The sorting key: complete trials by falling accuracy, then the others, ties by number."""
    value = trial.value if trial.state == TrialState.COMPLETE and trial.value is not None else None
    return (1, 0.0, trial.number) if value is None else (0, -value, trial.number)


def row(trial: FrozenTrial, keys: list[str]) -> list[str]:
    """A trial's cells."""
    words = WORDS[trial.state] + (f" after round {trial.last_step}" if trial.state == TrialState.PRUNED else "")
    if reason := trial.user_attrs.get(ERROR, ""):
        words += f": {reason.partition(chr(10))[0]}"
    figure = f"{100 * trial.value:.2f}" if trial.state == TrialState.COMPLETE and trial.value is not None else ""
    return [trial_folder_name(trial.number), words, figure, *(str(trial.params.get(key, "")) for key in keys)]


def percent_of(trial: FrozenTrial) -> str:
    """A trial's outcome, in a few words."""
    _, words, figure, *_ = row(trial, [])
    return f"validation {figure} %" if figure else words
