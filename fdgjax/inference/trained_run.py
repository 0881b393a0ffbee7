"""A trained run, and the models that it ended with: each client's, and those for an unseen domain."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from fdgjax.contract import PyTree, Variables
from fdgjax.data.federation import Partition
from fdgjax.engine import State, each_seed
from fdgjax.evaluation.features import Evaluated, classes_of_rows, features_of_rows
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment
from fdgjax.methods import METHODS
from fdgjax.run.reopen import reopen
from fdgjax.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """One seed of a trained run.

    experiment: of the run, with all its seeds. state: of this seed, after its last round.
    index: of this seed among the run's. records: of its rounds.
    """

    experiment: Experiment
    state: State
    index: int
    records: Sequence[Record]

    @property
    def seed(self) -> int:
        """The seed itself."""
        return self.experiment.seeds[self.index]

    @property
    def round(self) -> int:
        """The number of rounds trained."""
        return int(self.state.round)

    @property
    def parts(self) -> Partition:
        """The seed's split of the data."""
        return self.experiment.parts[self.index]

    @property
    def clients(self) -> int:
        """The number of clients that hold data; a method on pooled data trains one model for all of them."""
        return len(self.parts.train)

    @property
    def classifies(self) -> bool:
        """Whether the models predict classes: not those of a method that learns without labels."""
        return not METHODS[self.experiment.config.method.name].unlabelled

    def row(self, client: int) -> PyTree:
        """The state kept for a client, from 0; on pooled data the one row that there is."""
        row = 0 if self.experiment.method.pooled else client
        return jax.tree.map(lambda leaf: leaf[row], self.state.clients)

    def client_variables(self, client: int) -> Variables:
        """The variables that predict for a client, from 0; those of a frozen trunk are not among them."""
        found: Variables = jax.device_get(jax.jit(self.experiment.method.predict)(self.state.server, self.row(client)))
        return found

    def first_client_variables(self, most: int) -> list[Variables]:
        """`client_variables` of the first `most` clients, or of all where there are fewer, by one program for all.

        The two may differ in the last bits, where predicting takes arithmetic, as in a hypernetwork.
        """
        method, count = self.experiment.method, min(self.clients, most)
        rows = 1 if method.pooled else count
        clients = jax.tree.map(lambda leaf: leaf[:rows], self.state.clients)
        predict = jax.vmap(method.predict, in_axes=(None, 0), axis_size=rows)
        each = unstacked(jax.jit(predict)(self.state.server, clients))
        return each * count if method.pooled else each

    def unseen_variables(self) -> Variables:
        """The variables that predict for an unseen domain, stacked `[models, ...]`."""
        found: Variables = jax.device_get(jax.jit(self.experiment.method.unseen)(self.state.server, self.state.clients))
        return found

    def features(self, evaluated: Evaluated) -> list[np.ndarray]:
        """Each model's features of its samples, `[samples, m]`."""
        experiment = self.experiment
        return features_of_rows(experiment.model, experiment.federation, evaluated, experiment.config.eval_batch_size)

    def classes(self, evaluated: Evaluated) -> list[np.ndarray]:
        """The classes that each model predicts for its samples, int `[samples]`."""
        experiment = self.experiment
        return classes_of_rows(experiment.model, experiment.federation, evaluated, experiment.config.eval_batch_size)


def open_trained(path: Path, data_dir: str = "", seed: int | None = None) -> TrainedRun:
    """One seed of the run in a folder, with the state of the newest checkpoint.

    Args:
      path: the run's folder.
      data_dir: folder of the data, if it has moved since the run.
      seed: of a run with several; None for the first.

    Raises:
      UserError: no run, no checkpoint, no data, or no such seed.
    """
    experiment, state, history = reopen(path, data_dir)
    return of_seed(experiment, state, history.records, seed, "--seed")


def of_seed(
    experiment: Experiment, state: State, records: Sequence[Sequence[Record]], seed: int | None, name: str = "seed"
) -> TrainedRun:
    """One seed of a trained experiment.

    Args:
      experiment: what was trained.
      state: of all its seeds, with a seed axis where there are several.
      records: of each seed's rounds.
      seed: None for the first.
      name: of the argument that chose the seed, for the error.

    Raises:
      UserError: a seed that was not trained.
    """
    seeds = list(experiment.seeds)
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise UserError(f"{name} got {chosen}; expected one of the run's seeds, {seeds[0]} to {seeds[-1]}")
    index = seeds.index(chosen)
    return TrainedRun(experiment, each_seed(state, len(seeds))[index], index, records[index])


def unstacked(models: Variables) -> list[Variables]:
    """The models of a stack `[models, ...]`, one by one."""
    count = len(jax.tree.leaves(models)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], models) for i in range(count)]
