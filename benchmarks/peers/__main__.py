"""The same federated round in other frameworks: `python -m benchmarks.peers`.

FedAvg, every client in every round, the same network, steps, batch and Adam. What is not installed is left out.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.jobs import Job, Result
from benchmarks.options import base_job, close, parser, run
from benchmarks.peers.contenders import PEERS, jobs_of
from benchmarks.tables import markdown, mebibytes, median, paired_ratio, series, spelled
from fdgjax.utils.command import command, positive_number
from fdgjax.utils.errors import UserError

REFERENCE = "torch"
"""With which all others are compared, if it was measured."""


@command
def main(argv: Sequence[str]) -> int:
    """Measures and prints.

    Raises:
      UserError: nothing that was asked for is installed.
    """
    options = parser("The same federated round in other frameworks.")
    add = options.add_argument
    add("--model", default="inception", help="entry of benchmarks.models.MODELS with twins")
    add("--clients", type=positive_number, default=4)
    add("--steps", type=positive_number, default=8, help="minibatches per client and round")
    add("--per_round", type=positive_number, help="participants of a round, drawn anew for each; default all clients")
    add("--contenders", nargs="+", default=list(PEERS), help=", ".join(PEERS))
    add("--environments", type=Path, default=Path("runs", "peers"), help="folder of the environments by name")
    chosen = options.parse_args(argv)
    jobs, absent = jobs_of(chosen.contenders, base_job(chosen, chosen.model), chosen.environments)
    if not jobs:
        raise UserError(f"none of {', '.join(chosen.contenders)} is installed; expected one; {absent[0]}")
    print(*absent, sep="\n", flush=True)
    measurements, path = run("peers", chosen, jobs)
    close(measurements, "\n".join([table(measurements, chosen.contenders), "", *absent]), path)
    return 0


def table(measurements: Sequence[Result], contenders: Sequence[str]) -> str:
    """One row per contender that was measured: medians over repeats, and ratios taken within each repeat."""
    header = ["contender", "what is run", "images/s", f"vs {REFERENCE}", "s per round", "peak MiB", "start s"]
    measured = {m["contender"] for m in measurements}
    reference = series(measurements, REFERENCE, "images_per_second")
    rows = []
    for name in (name for name in contenders if name in measured):
        speed = series(measurements, name, "images_per_second")
        mine = [m for m in measurements if m["contender"] == name and "images_per_second" in m]
        seconds = {m["repeat"]: Job(**m["job"]).images_per_round for m in mine}
        rows.append(
            [
                name,
                ", ".join([*(m["framework"] for m in mine[:1] if "framework" in m), PEERS[name].does]),
                spelled(median(speed), "{:,.1f}".format),
                spelled(paired_ratio(speed, reference), "{:.2f}x".format),
                spelled(median({k: images / speed[k] for k, images in seconds.items()}), "{:.2f}".format),
                spelled(median(series(measurements, name, "peak_bytes")), mebibytes),
                spelled(median(series(measurements, name, "compile_seconds")), "{:.1f}".format),
            ]
        )
    return markdown(header, rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
