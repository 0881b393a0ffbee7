"""Curves of runs, small enough to be kept with the project; reports can be drawn from them without any data.

    python -m launch.evidence RUN [RUN ...] --out benchmarks/results/NAME

For each run, finished or not, it keeps the config without paths of data, the versions without the machine, the commit,
one line of metrics for each round, and the summary. Numbers have five significant digits; calibration bins are left
out. `--commit HASH` is for runs that did not record theirs, as an installed package does not.

    fdgjax report benchmarks/results/NAME --out DIR --no-states
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fdgjax.config.schema import PLACES, experiment_identity
from fdgjax.run.console import Console
from fdgjax.run.records import Workdir, write_summary
from fdgjax.utils.checksums import CHECKSUM, read_checked_json, write_checked_json
from fdgjax.utils.command import command
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_text

DIGITS = 5
BULKY = ("calibration",)
"""Entries of records that hold many numbers and are in no curve."""
MACHINE = ("platform",)


@command
def main(argv: Sequence[str]) -> int:
    """Keeps the runs' curves.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.evidence", description=str(__doc__).partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run of one seed")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets a folder for each run, of its name")
    parser.add_argument("--commit", default="", help="commit of the project, for runs that did not record it")
    args = parser.parse_args(argv[1:])
    names = [run.name for run in args.runs]
    if doubled := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UserError(f"RUN got {names.count(doubled[0])} folders called '{doubled[0]}'; expected each name once")
    console = Console()
    for run in args.runs:
        out = Workdir(args.out / run.name)
        done, rounds, commit = keep(Workdir(run), out, args.commit)
        ended = "" if out.summary.is_file() else ", no summary"
        console.say(f"{run.name}: {done} of {rounds} rounds{ended}, commit {commit or 'unknown'}")
    return 0


def keep(run: Workdir, out: Workdir, commit: str) -> tuple[int, int, str]:
    """Writes what is kept of a run; an earlier state of the same run is replaced.

    Returns:
      How many rounds are kept, how many it has when it is finished, and its commit, '' where it is not known.

    Raises:
      UserError: no run, one of several seeds, one that recorded another commit, or one of another experiment than what
        is kept by this name.
    """
    if not (run.config.is_file() and run.metrics.is_file()):
        raise UserError(
            f"RUN got '{run.path}', which has no config.json with metrics.jsonl; expected the folder of one seed's run"
        )
    content = content_of(run.config)
    made_at = content.get("commit") or commit
    if not (made_at.startswith(commit) or commit.startswith(made_at)):
        raise UserError(f"--commit got '{commit}', and {run.path} recorded '{made_at}'; expected none, or the same")
    versions = {name: version for name, version in content["versions"].items() if name not in MACHINE}
    data = content["config"]["data"] | dict.fromkeys(PLACES, "")
    out.path.mkdir(parents=True, exist_ok=True)
    config = content["config"] | {"data": data}
    if out.config.is_file() and identity(content_of(out.config)["config"]) != identity(config):
        raise UserError(f"{out.path} keeps another experiment than {run.path}; expected another name; copy the folder")
    write_checked_json(out.config, {"config": config, "versions": versions, "commit": made_at})
    records = [compact(json.loads(line)) for line in run.metrics.read_text().splitlines()]
    write_text(out.metrics, "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    if run.summary.is_file():
        write_summary(out, compact(content_of(run.summary)))
    else:
        out.summary.unlink(missing_ok=True)
    return len(records), config["rounds"], made_at


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a run, its number of rounds apart, which may grow."""
    return experiment_identity(config) | {"rounds": 0}


def content_of(path: Path) -> dict[str, Any]:
    """A run's JSON; runs of version 0.1 have no checksum in it."""
    content: dict[str, Any] = json.loads(path.read_text())
    return read_checked_json(path) if CHECKSUM in content else content


def compact(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with short numbers, without what is bulky."""
    return {key: shortened(value) for key, value in record.items() if key not in BULKY}


def shortened(value: Any) -> Any:
    """Nested JSON with floats of five significant digits."""
    if isinstance(value, Mapping):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv))
