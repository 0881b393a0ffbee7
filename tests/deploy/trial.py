"""A deployment on loopback beside the simulation of the same experiment: the largest difference of their numbers."""

import csv
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.data.columns import Column
from fdgjax.data.federation import Rows, on_device
from fdgjax.deploy.app import ServerSettings, write_app
from fdgjax.deploy.folder import STATES
from fdgjax.deploy.kept import read_kept, state_file
from fdgjax.deploy.node import NodeState
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.placement import by_path
from fdgjax.deploy.rounds import Say
from fdgjax.deploy.server import DeployedState, ServerPrograms, make_server
from fdgjax.deploy.terms import OwnSamples, Terms, agree, from_words
from fdgjax.engine import State
from fdgjax.evaluation.evaluating import evaluate
from fdgjax.evaluation.metrics import figures
from fdgjax.experiments import Experiment, build
from fdgjax.run.compilation import first_state
from fdgjax.run.records import newest_checkpoint
from fdgjax.utils.errors import UserError
from tests.deploy import loopback
from tests.deploy.loopback import Place, Secured

PAUSE_SECONDS = 5.0
"""Between the end of a node and its next start."""
PATIENCE_SECONDS = 600.0
"""Without a round, after which a federation hangs."""


class Trial(NamedTuple):
    """An experiment, and each party's own samples.

    experiment: as it is simulated. clients, held_out: `[clients]`, to train and to evaluate on. server: empty where it
    has none. unseen: what the unseen party has, the last one; empty where there is none.
    """

    experiment: Experiment
    terms: Terms
    clients: list[OwnSamples]
    held_out: list[OwnSamples]
    server: OwnSamples
    unseen: OwnSamples

    @property
    def parties(self) -> list[OwnSamples]:
        """What each party trains on, or the unseen one evaluates on."""
        return [*self.clients, *([] if self.terms.unseen is None else [self.unseen])]


class Running(NamedTuple):
    """A federation that runs: its place and its programs; how one more is ended with the others (`keep`), and how each
    of them is started again."""

    place: Place
    programs: dict[str, Popen[bytes]]
    keep: Callable[[Popen[bytes]], Popen[bytes]]
    link: Callable[[], Popen[bytes]]
    node: Callable[[int], Popen[bytes]]
    run: Callable[[], Popen[bytes]]


class Difference(NamedTuple):
    """The largest difference of the server's state, and of the clients' rows; the largest floating-point number of
    both."""

    server: float
    rows: float
    largest: float


def nothing_happens(done: int, running: Running) -> None:
    """Leaves a running federation alone."""


def make_trial(config: Config, most: int = 0, *, unseen: bool = False) -> Trial:
    """The experiment with at most `most` training samples for each client and for the server; 0 for all; `unseen`:
    whether the unseen domain has a node.

    Raises:
      UserError: like `build`.
    """
    where = dataclasses.replace(config.data, streaming=False)
    model = dataclasses.replace(config.model, keep_features=False)
    experiment = build(dataclasses.replace(config, devices=1, data=where, model=model))
    train = experiment.train._replace(
        train=first_rows(experiment.train.train, most), server=first_rows(experiment.train.server, most)
    )
    data = experiment.data
    count = len(train.ids)
    left = count if unseen else None
    terms = Terms(experiment.config, data.class_names, data.inputs.shape[1:], count, data.columns, unseen=left)
    agree(terms)
    evaluated = experiment.federation
    clients, held_out = (
        [samples_of_row(experiment, rows, client) for client in range(count)]
        for rows in (train.train, evaluated.validation)
    )
    init = partial(experiment.init.func, experiment.init.args[0], train)
    return Trial(
        experiment._replace(train=train, init=init),
        terms,
        clients,
        held_out,
        samples_of_row(experiment, train.server, 0),
        samples_of_row(experiment, evaluated.target, 0),
    )


def first_rows(rows: Rows, most: int) -> Rows:
    """The first `most` samples of each row; 0 for all."""
    if not most:
        return rows
    places, lengths = (np.asarray(leaf) for leaf in rows)
    return Rows(on_device(places[:, :most]), on_device(np.minimum(lengths, most)))


def samples_of_row(experiment: Experiment, rows: Rows, place: int) -> OwnSamples:
    """The samples of one row of a table, in its order."""
    own = np.asarray(rows.places)[place][: int(rows.length[place])]
    return OwnSamples(experiment.data.inputs[own], experiment.data.labels[own])


def node_settings(trial: Trial, folder: Path, smallest: int = 1) -> list[NodeSettings]:
    """Each party's settings for nodes in this process, whose samples are written below `folder`."""
    found = []
    for party, own in enumerate(trial.parties):
        place = folder / f"node{party}"
        samples, held_out = write_own(place, own, trial)[1], None
        if party != trial.terms.unseen:
            held_out = write_own(place / "held_out", trial.held_out[party], trial)[1]
        whole = held_out is None
        found.append(NodeSettings(party, samples, place / "states", False, held_out, whole, smallest))
    return found


def simulate(trial: Trial) -> State:
    """The state after all rounds, in this process."""
    state = first_state(trial.experiment)
    for _ in range(trial.terms.config.rounds):
        state, _ = trial.experiment.round(state, trial.experiment.train)
    return state


def simulated_figures(trial: Trial) -> list[dict[str, Any]]:
    """The figures of each round that is evaluated, in this process."""
    experiment, config, found = trial.experiment, trial.terms.config, []
    state = first_state(experiment)
    for number in range(1, config.rounds + 1):
        state, _ = experiment.round(state, experiment.train)
        if number % config.eval_every == 0 or number == config.rounds:
            found.append(figures(evaluate(experiment.evaluation, state, experiment.federation)[0]))
    return found


def write_folder(folder: Path, own: OwnSamples, class_names: Sequence[str]) -> None:
    """Writes samples as a folder of (lossless) PNG files, named by their order."""
    for place, (image, label) in enumerate(zip(own.inputs, own.labels, strict=True)):
        into = folder / class_names[int(label)]
        into.mkdir(parents=True, exist_ok=True)
        grey = image.shape[-1] == 1
        Image.fromarray(image[..., 0] if grey else image).save(into / f"{place:06d}.png")


def write_table(file: Path, own: OwnSamples, trial: Trial) -> Path:
    """A party's rows as it would have them, columns in another order and one more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = trial.terms.columns

    def cell(value: float, column: Column) -> str:
        return "" if np.isnan(value) else column.categories[int(value)] if column.categories else repr(float(value))

    rows = [
        [trial.terms.class_names[label], "x", *map(cell, row[::-1], columns[::-1])]
        for row, label in zip(own.inputs, own.labels, strict=True)
    ]
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["sick", "name", *(column.name for column in columns[::-1])], *rows])
    return file


def write_own(folder: Path, own: OwnSamples, trial: Trial) -> tuple[str, Path]:
    """Writes a party's samples below a folder, as a table or as images; returns the word for them and their place."""
    if trial.terms.columns:
        return "table", write_table(folder / "own.csv", own, trial)
    write_folder(folder / "images", own, trial.terms.class_names)
    return "images", folder / "images"


def agreed_terms(folder: Path) -> Terms:
    """The terms that a deployment ended with, in which columns are standardised by all clients' statistics."""
    from safetensors import safe_open

    with safe_open(folder / "server" / "model.safetensors", framework="numpy") as model:
        return from_words(model.metadata()["terms"])


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
        if time.monotonic() - since > PATIENCE_SECONDS:
            raise UserError(f"nothing since round {said} for {PATIENCE_SECONDS:.0f} s; {last_lines(folder)}")
        if over:
            break
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


def compare(trial: Trial, folder: Path) -> Difference:
    """What a deployment left in `folder`, beside the simulation.

    Raises:
      UserError: nothing was left.
    """
    server = make_server(agree(trial.terms), trial.server)
    lengths = np.array([len(own.labels) for own in trial.clients], np.int32)
    found = newest_checkpoint(folder / "server" / STATES, server.first(lengths), print)
    if found is None:
        raise UserError(f"{folder} holds no checkpoint; expected the folder of a deployment")
    kept = [
        read_kept(state_file(NodeSettings(client, folder, folder / f"node{client}" / "states"), trial.terms))
        for client in range(trial.terms.clients)
    ]
    return difference(server, found[0], kept, simulate(trial))


def difference(
    server: ServerPrograms, held: DeployedState, kept: Sequence[NodeState | None], state: State
) -> Difference:
    """A deployment's state beside a simulation's: the server's, and the clients' rows, each leaf where it is held."""
    pairs = list(zip(jax.tree.leaves(state.server), jax.tree.leaves(held.state.server), strict=True))
    rows: list[tuple[PyTree, PyTree]] = []
    for part, table in enumerate((state.clients, state.optimizers)):
        for path, leaf in by_path(table).items():
            if part == 0 and path in server.placement.server:
                rows.append((leaf, held.state.clients[path]))
                continue
            each = [one.after[f"[{part}]{path}"] for one in kept if one is not None]
            rows.append((leaf, np.stack(each)))
    numbers = [np.asarray(leaf) for leaf, _ in (*pairs, *rows) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return Difference(
        max((apart(a, b) for a, b in pairs), default=0.0),
        max((apart(a, b) for a, b in rows), default=0.0),
        max((float(np.max(np.abs(a), initial=0.0)) for a in numbers), default=0.0),
    )


def apart(left: PyTree, right: PyTree) -> float:
    """The largest difference of two arrays."""
    return float(np.max(np.abs(as_float(left) - as_float(right)), initial=0.0))


def as_float(leaf: PyTree) -> np.ndarray:
    """An array as float64."""
    return np.asarray(leaf).astype(np.float64)
