"""A deployment on loopback beside the simulation of the same experiment: the largest difference of their numbers."""

import csv
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.data.columns import Column
from fdgjax.data.federation import Rows, on_device
from fdgjax.deploy.folder import STATES
from fdgjax.deploy.kept import read_kept, state_file
from fdgjax.deploy.leaves import by_path
from fdgjax.deploy.node import NodeState
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.own_samples import OwnPlaces
from fdgjax.deploy.server import DeployedState, ServerPrograms, make_server
from fdgjax.deploy.terms import OwnSamples, Terms, agree, from_words
from fdgjax.engine import State
from fdgjax.evaluation.metrics import figures
from fdgjax.experiments import Experiment, build
from fdgjax.run.compilation import first_state
from fdgjax.run.records import newest_checkpoint
from fdgjax.utils.errors import UserError


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


class Difference(NamedTuple):
    """The largest difference of the server's state, and of the clients' rows; the largest floating-point number of
    both."""

    server: float
    rows: float
    largest: float


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
        places = OwnPlaces(samples, held_out, whole=held_out is None)
        found.append(NodeSettings(party, places, place / "states", smallest=smallest))
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
            observed = experiment.evaluation.observe(state, experiment.federation)
            found.append(figures(experiment.evaluation.measure(observed)[0]))
            if experiment.evaluation.further:
                found[-1] |= experiment.evaluation.further(observed)[0]
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
        read_kept(state_file(NodeSettings(client, OwnPlaces(folder), folder / f"node{client}" / "states"), trial.terms))
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
