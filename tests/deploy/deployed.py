"""A trial deployed on this machine: all its rounds by Flower, each party in processes of its own."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from fdgjax.deploy.app import ServerSettings, write_app
from fdgjax.deploy.rounds import Say
from fdgjax.utils.errors import UserError
from tests.deploy import loopback
from tests.deploy.loopback import Place, Secured
from tests.deploy.trial import Trial, write_own

PAUSE_SECONDS = 5.0
"""Between the end of a node and its next start."""
PATIENCE_SECONDS = 600.0
"""Without a round, after which a federation hangs."""


class Running(NamedTuple):
    """A federation that runs: its place and its programs; how one more is ended with the others (`keep`), and how each
    of them is started again."""

    place: Place
    programs: dict[str, Popen[bytes]]
    keep: Callable[[Popen[bytes]], Popen[bytes]]
    link: Callable[[], Popen[bytes]]
    node: Callable[[int], Popen[bytes]]
    run: Callable[[], Popen[bytes]]


def nothing_happens(done: int, running: Running) -> None:
    """Leaves a running federation alone."""


def deploy(
    trial: Trial,
    folder: Path,
    secured: Secured,
    say: Say,
    deadline: float = 0.0,
    disturb: Callable[[int, Running], None] = nothing_happens,
) -> None:
    """All rounds by Flower, each party in processes of its own on this machine, with folders of its own in `folder`.

    Args:
      trial: what is trained.
      folder: where everything is written.
      secured: TLS and authentication.
      say: where the server's lines go.
      deadline: see `fdgjax.deploy.rounds.Policy`.
      disturb: called with the number of finished rounds, again and again while the federation runs.

    Raises:
      UserError: Flower does not start, or a party made a mistake.
    """
    parties, folder = trial.terms.parties, folder.absolute()
    held = [write_own(folder / f"node{party}", own, trial) for party, own in enumerate(trial.parties)]
    for party, own in enumerate(trial.held_out):
        write_own(folder / f"node{party}" / "held_out", own, trial)
    served = write_own(folder / "server", trial.server, trial)[1] if len(trial.server.labels) else None
    if secured.keys is not None and not secured.keys.exists():
        from fdgjax.deploy.keys import make_keys  # here, as it needs the extra `flower`

        make_keys(secured.keys, parties, [], 8000)
    settings = ServerSettings(trial.terms, folder / "server", str(served or ""), deadline, 1, secured.authentication)
    write_app(folder / "app", settings)
    place = Place(folder, loopback.free_port(), secured)
    with loopback.processes(folder) as keep:

        def node(client: int) -> Popen[bytes]:
            own = folder / f"node{client}"
            key = secured.keys / f"client{client}" if secured.keys and secured.authentication else None
            kind, samples = held[client]
            held_out = own / "held_out" / samples.name if client != trial.terms.unseen else "none"
            words = f"client={client} {kind}='{samples}' states='{own / 'states'}' held_out='{held_out}' smallest=1"
            return keep(loopback.start_node(place, client, words, key))

        def run() -> Popen[bytes]:
            return keep(loopback.start_run(place, folder / "app"))

        def link() -> Popen[bytes]:
            started = keep(loopback.start_link(place))
            for client in range(parties if secured.authentication else 0):
                loopback.register(place, client)
            return started

        programs = {"link": link()}
        for client in range(parties):
            programs[f"node{client}"] = node(client)
        programs["run"] = run()
        follow(trial, folder, Running(place, programs, keep, link, node, run), say, disturb)


def follow(trial: Trial, folder: Path, running: Running, say: Say, disturb: Callable[[int, Running], None]) -> None:
    """Waits for the end of the run, and says what its server says. Raises like `deploy`."""
    lines, said, since = folder / "server" / "rounds.jsonl", 0, time.monotonic()
    while True:
        over = running.programs["run"].poll() is not None
        told = lines.read_text().splitlines() if lines.exists() else []
        for line in told[said:]:
            say(line)
            since = time.monotonic()
        said = len(told)
        if (mistake := folder / "server" / "failed.json").exists():
            raise UserError(json.loads(mistake.read_text())["error"])
        if over:
            break
        if time.monotonic() - since > PATIENCE_SECONDS:
            raise UserError(f"nothing since round {said} for {PATIENCE_SECONDS:.0f} s; {last_lines(folder)}")
        disturb(said, running)
        restart(running)
        time.sleep(0.5)
    if said < trial.terms.config.rounds:
        raise UserError(f"the run ended after round {said} of {trial.terms.config.rounds}; see {folder / 'run.log'}")


def last_lines(folder: Path) -> str:
    """The end of every log below a folder."""
    logs = sorted(folder.rglob("*.log")) + sorted(folder.rglob("messages.jsonl"))
    return "\n".join(f"{log}:\n" + "\n".join(log.read_text().splitlines()[-12:]) for log in logs)


def restart(running: Running) -> None:
    """Starts nodes again that ended: a SuperLink refuses a node's key for a minute after the node was killed, until it
    takes it for offline, and the node then gives up. A hospital's supervisor does the same."""
    for name, process in running.programs.items():
        if name.startswith("node") and process.poll() is not None:
            loopback.stop(process)
            time.sleep(PAUSE_SECONDS)
            running.programs[name] = running.node(int(name.removeprefix("node")))
