"""A deployment on loopback beside the simulation, for the figures of docs/deployment.md.

    python -m tests.deploy.check --tls --authentication --samples 12 --config=METHOD --config.rounds=2

--unseen gives the unseen domain a node; --samples N takes so many images of each client for training (0 for all); --dir
DIR keeps what is written; --warm gives each node one process for all messages (`fdgjax flower --node`). Prints a line
for each round, the last figures beside the simulation's, and the largest difference from the simulation; exits with 1
where that is more than rounding.
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fdgjax.cli.flower import of_experiment
from fdgjax.config.command_line import joined_words, parse
from fdgjax.evaluation.metrics import HEADLINES
from tests.deploy.deployed import deploy
from tests.deploy.loopback import Secured
from tests.deploy.trial import compare, make_trial, simulated_figures


def main(argv: Sequence[str]) -> int:
    words = joined_words(argv[1:])
    parser = argparse.ArgumentParser("python -m tests.deploy.check", allow_abbrev=False)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--authentication", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--deadline", type=float, default=0.0)
    parser.add_argument("--dir", default="")
    asked = parser.parse_args([word for word in words if not of_experiment(word)])
    # A first SIGTERM unwinds, so that what was started is ended, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    trial = make_trial(parse([argv[0], *filter(of_experiment, words)])[0], asked.samples, unseen=asked.unseen)
    with tempfile.TemporaryDirectory(prefix="fdgjax-flower-") as temporary:
        folder = Path(asked.dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        keys = folder.absolute() / "keys" if asked.tls or asked.authentication else None
        secured = Secured(keys, asked.authentication, asked.warm)
        deploy(trial, folder, secured, lambda line: print(line, flush=True), asked.deadline)
        found = compare(trial, folder)
        records = [json.loads(line) for line in (folder / "server" / "metrics.jsonl").read_text().splitlines()]
    expected = simulated_figures(trial)[-1]
    for key in (key for key in HEADLINES if key in expected or key in records[-1]):
        print(f"{key}: {records[-1].get(key)}, in the simulation {expected.get(key)}")
    print(json.dumps({"method": trial.terms.config.method.name, **found._asdict()}))
    print(f"largest difference from the simulation: {max(found.server, found.rows):.1e}")
    return 0 if max(found.server, found.rows) <= 1e-3 * max(found.largest, 1.0) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
