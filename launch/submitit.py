"""A sweep, a paper's table or a search as a SLURM job array by submitit: `pip install 'fdgjax[slurm]'`.

    python -m launch.submitit --tasks 8 --gpus 1 --slurm partition=gpu -- reproduce hfedf-pacs --out DIR --data_dir DATA
    python -m launch.submitit --tasks 4 -- search fedprox --out DIR
    python -m launch.submitit --tasks 2 --cluster local --stay -- sweep SPEC.py --out DIR     # on this machine

What follows -- is a command of fdgjax; every task runs its share of it (--shard) on the same folder. Before its time
limit, and when it is preempted, a task saves, stops, and is queued again; the same command, given again, runs what is
left. Logs are in DIR/submitit.
"""

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from fdgjax.cli import subcommands
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.errors import UserError, check_library, unknown

SHARED = ("choose", "contributions", "reproduce", "search", "sweep")
"""The commands that several tasks can run on one folder."""
SAVING_SECONDS = 300
"""How long before its time limit a task is told to save, in seconds."""
TIMEOUTS = 1000
"""How often a task may be queued again after reaching its time limit."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What a task runs: a command of fdgjax. It is a class because submitit needs its `checkpoint`."""

    words: tuple[str, ...]

    def __call__(self) -> int:
        """Runs the command; at submitit's signal, the state is saved and the task is queued again.

        Raises:
          RuntimeError: the command failed, which submitit shows as a failed job.
        """
        asked: list[int] = []

        def save(number: int, frame: FrameType | None) -> None:
            asked.append(number)
            os.kill(os.getpid(), signal.SIGTERM)

        queue_anew = signal.signal(signal.SIGUSR2, save)
        try:
            status = subcommands.main(["fdgjax", *self.words])
        finally:
            signal.signal(signal.SIGUSR2, queue_anew)
        if status and asked and callable(queue_anew):
            queue_anew(asked[0], None)
        if status:
            raise RuntimeError(f"fdgjax ended with status {status}; the log has the reason")
        return status

    def checkpoint(self) -> Any:
        """What submitit queues again: the same task, as the folder has the state."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def parser() -> argparse.ArgumentParser:
    """The options of a submission."""
    made = argparse.ArgumentParser(prog="python -m launch.submitit", description=str(__doc__).partition("\n")[0])
    add = made.add_argument
    add("--tasks", type=positive_number, default=1, metavar="N", help="tasks of the array")
    add("--gpus", type=int, default=0, metavar="N", help="GPUs of a task")
    add("--cpus", type=positive_number, default=4, metavar="N", help="cores of a task")
    add("--memory", type=float, default=32.0, metavar="GB", help="memory of a task")
    add("--hours", type=float, default=24.0, help="hours after which a task is queued again")
    add("--slurm", nargs="+", default=[], metavar="KEY=VALUE", help="more options of sbatch, such as partition=gpu")
    add("--cluster", default=None, help="slurm, local or debug; detected by default")
    add("--stay", action="store_true", help="waits until all tasks have ended")
    add("command", nargs="+", metavar="COMMAND", help=f"after --: {', '.join(SHARED)}, with its arguments")
    return made


@command
def main(argv: Sequence[str]) -> int:
    """Submits the tasks.

    Returns:
      The exit status: 0 when they are submitted, or, with --stay, have succeeded; 1 when one failed; 2 for a mistake.
    """
    args = parser().parse_args(argv[1:])
    check_library("launch.submitit", "submitit", "slurm")
    jobs = submit(tasks_of(args.command, args.tasks), args)
    print(f"submitted {', '.join(job.job_id for job in jobs)}; logs in {folder_of(args.command)}")
    failed = [error for job in jobs if args.stay and (error := job.exception()) is not None]
    for error in failed:
        print(f"failed: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    return 1 if failed else 0


def submit(tasks: Sequence[Task], args: argparse.Namespace) -> list[Any]:
    """The submitted jobs, one array."""
    import submitit

    executor = submitit.AutoExecutor(folder_of(args.command) / "%j", args.cluster, slurm_max_num_timeout=TIMEOUTS)
    executor.update_parameters(
        name="fdgjax",
        timeout_min=round(60 * args.hours),
        mem_gb=args.memory,
        cpus_per_task=args.cpus,
        gpus_per_node=args.gpus,
        slurm_signal_delay_s=SAVING_SECONDS,
        slurm_additional_parameters=dict(map(key_and_value, args.slurm)),
    )
    with executor.batch():
        return [executor.submit(task) for task in tasks]


def tasks_of(command: Sequence[str], count: int) -> list[Task]:
    """Each task's share of the command.

    Raises:
      UserError: a command that cannot be shared.
    """
    if command[0] not in SHARED:
        raise unknown("COMMAND", command[0], SHARED)
    return [Task((*command, f"--shard={index}/{count}")) for index in range(1, count + 1)]


def folder_of(command: Sequence[str]) -> Path:
    """Where the logs go.

    Raises:
      UserError: no `--out`.
    """
    reader = argparse.ArgumentParser(add_help=False)
    reader.add_argument("--out")
    out = reader.parse_known_args(list(command))[0].out
    if not out:
        raise UserError(f"COMMAND got '{' '.join(command)}' without --out; expected the folder that the tasks share")
    return Path(out) / "submitit"


def key_and_value(word: str) -> tuple[str, str]:
    """`partition=gpu` as two words; a `UserError` for others."""
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise UserError(f"--slurm got '{word}'; expected KEY=VALUE, such as partition=gpu")
    return key, value


if __name__ == "__main__":
    sys.exit(main(sys.argv))
