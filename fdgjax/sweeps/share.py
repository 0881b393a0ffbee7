"""Shares of many runs: which of N commands on one folder this is, as set by the user or the scheduler."""

from collections.abc import Mapping
from typing import NamedTuple

from fdgjax.utils.errors import UserError

SCHEDULERS = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"),
)
"""Environment variables of a SLURM array's task, and of a pod of a Kubernetes Indexed Job: its index, the number of
tasks, the first index (default 0) and the step (default 1). Kubernetes sets the index only; `launch/kubernetes.yaml`
adds the number of pods."""


class Share(NamedTuple):
    """Share `number`, from 1, of `shares`."""

    number: int
    shares: int


def share_of(word: str, environment: Mapping[str, str]) -> Share:
    """`3/8` as two numbers; for `auto` those of this task of a SLURM array or of this pod of an Indexed Job.

    Raises:
      UserError: another word, `auto` outside of such an array or Job, or an array with gaps.
    """
    if word == "auto":
        return scheduled(environment)
    number, _, shares = word.partition("/")
    if not (number.isdecimal() and shares.isdecimal() and 1 <= int(number) <= int(shares)):
        raise UserError(f"--shard got '{word}'; expected I/N with 1 <= I <= N, such as 3/8, or auto")
    return Share(int(number), int(shares))


def scheduled(environment: Mapping[str, str]) -> Share:
    """The share that a scheduler's environment variables give; see `share_of`."""
    names = next((names for names in SCHEDULERS if names[0] in environment), ())
    found = {name: environment.get(name, "") for name in names}
    if not found or not all(map(str.isdecimal, found.values())):
        raise UserError(
            f"--shard=auto got {found or 'no scheduler'}; expected a task of a SLURM array (sbatch --array=1-8), or a "
            "pod of an Indexed Job that has JOB_COMPLETIONS, too; elsewhere give --shard=I/N"
        )
    task, count, first, step = (*map(int, found.values()), 0, 1)[:4]
    index, rest = divmod(task - first, max(step, 1))
    if rest or not 0 <= index < count:
        raise UserError(
            f"--shard=auto got task {task} of {count}, from {first} on by {step}; expected tasks without gaps, such as "
            "--array=1-8"
        )
    return Share(index + 1, count)
