"""Tortures the real program on real processes, and prints one table.

    python -m tests.torture --minutes 60 [--seed 0] [--only NAMES] [--out FILE]

Every trial commits one fault and compares with the undisturbed run: its records, figures and final state, bit for bit.
Needs a system with `fork`; cutting the power also needs to be root, for loop devices.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.torture import input as inputs
from tests.torture import trials
from tests.torture.trials import Bench, Outcome


class Trial(NamedTuple):
    """A kind of fault, what its faults are called, and its share of the time."""

    commit: Callable[[Bench], Outcome]
    faults: str
    share: float


TRIALS: Mapping[str, Trial] = {
    "kills": Trial(trials.kill, "SIGKILLs", 0.34),
    "cuts": Trial(trials.cut_power, "power cuts", 0.26),
    "damage": Trial(trials.damage_run, "damaged workdirs", 0.17),
    "caches": Trial(trials.damage_cache, "damaged caches", 0.15),
    "lines": Trial(inputs.command_lines, "bad command lines", 0.03),
    "folders": Trial(inputs.image_folder, "bad folders", 0.05),
}


def possible(name: str) -> bool:
    """Whether this machine can do it."""
    return name != "cuts" or (os.geteuid() == 0 and Path("/dev/loop-control").exists())


def torture(bench: Bench, names: Sequence[str], seconds: float) -> Iterator[tuple[str, Outcome]]:
    """Trials until the time is over, the kind that is furthest behind its share first."""
    spent = dict.fromkeys(names, 0.0)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        name = min(names, key=lambda name: spent[name] / TRIALS[name].share)
        now = time.monotonic()
        outcome = TRIALS[name].commit(bench)
        spent[name] += time.monotonic() - now
        yield name, outcome


def table(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """A line for each kind of fault."""
    lines = ["| fault | committed | same result, or read | refused in one line | wrong |", "|---|---|---|---|---|"]
    for name, trial in TRIALS.items():
        mine = [outcome for kind, outcome in outcomes if kind == name]
        done = sum(outcome.faults for outcome in mine)
        wrong = sum(outcome.wrong.count("; ") + 1 for outcome in mine if outcome.wrong)
        said = sum(outcome.faults for outcome in mine if outcome.said) - (wrong if name == "lines" else 0)
        lines.append(f"| {trial.faults} | {done} | {done - said - wrong} | {said} | {wrong} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Tortures; the exit status is 0 where nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help=f"kinds of faults, with commas: {', '.join(TRIALS)}")
    parser.add_argument("--out", type=Path, help="file that gets the table, too")
    args = parser.parse_args(argv[1:])
    names = [name for name in (args.only.split(",") if args.only else TRIALS) if possible(name)]
    # Imported once, for all the processes that are forked from this one; it never starts JAX itself.
    import fdgjax.cli.train  # noqa: F401

    outcomes: list[tuple[str, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        bench = Bench(Path(folder), Path(folder) / "cache", random.Random(args.seed), {}, {})
        for name, outcome in torture(bench, names, 60 * args.minutes):
            outcomes.append((name, outcome))
            print(f"{name:8s} {'WRONG ' + outcome.wrong if outcome.wrong else 'ok':10s} {outcome.what}", flush=True)
            if args.out:
                args.out.write_text(table(outcomes) + "\n")
    print(table(outcomes))
    return int(any(outcome.wrong for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
