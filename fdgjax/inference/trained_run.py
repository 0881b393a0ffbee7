"""A trained run and its models: each client's, and those for an unseen domain."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from fdgjax.config import seeds_of
from fdgjax.contract import PyTree, Variables
from fdgjax.data.federation import Federation, Partition
from fdgjax.engine import State, each_seed
from fdgjax.evaluation.features import Evaluated, classes_of_rows, features_of_rows
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment, Outline, outline_of
from fdgjax.inference.kept_rounds import LAST, kept_state
from fdgjax.methods import METHODS
from fdgjax.run.reopen import outline, rebuilt
from fdgjax.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class TrainedModels:
    """The models of one seed of a trained run, for which its data are not needed.

    outline: of the run's experiment, with all its seeds. state: this seed's, after one of its rounds.
    index: this seed's position among the run's seeds. records: those of this seed's rounds up to the newest checkpoint.
    """

    outline: Outline
    state: State
    index: int
    records: Sequence[Record]

    @property
    def seed(self) -> int:
        """The seed itself."""
        return seeds_of(self.outline.config)[self.index]

    @property
    def round(self) -> int:
        """The number of rounds trained."""
        return int(self.state.round)

    @property
    def clients(self) -> int:
        """The number of clients that hold data; a method on pooled data trains one model for all of them."""
        return self.outline.data.clients

    @property
    def classifies(self) -> bool:
        """Whether the models predict classes; false for numbers, and for a method that learns without labels."""
        return self.learns_labels and not self.outline.data.numeric

    @property
    def learns_labels(self) -> bool:
        """Whether the models predict labels; false for a method that learns without them."""
        return not METHODS[self.outline.config.method.name].unlabelled

    def row(self, client: int) -> PyTree:
        """The state kept for a client, numbered from 0; on pooled data, the only row."""
        row = 0 if self.outline.method.pooled else client
        return jax.tree.map(lambda leaf: leaf[row], self.state.clients)

    def client_variables(self, client: int) -> Variables:
        """The variables that predict for a client, numbered from 0; without those of a frozen trunk."""
        found: Variables = jax.device_get(jax.jit(self.outline.method.predict)(self.state.server, self.row(client)))
        return found

    def first_client_variables(self, most: int) -> list[Variables]:
        """`client_variables` of the first `most` clients, or of all if there are fewer, computed by one program.

        The results may differ from those of `client_variables` in the last bits if the models have to be computed, as
        by a hypernetwork.
        """
        method, count = self.outline.method, min(self.clients, most)
        rows = 1 if method.pooled else count
        clients = jax.tree.map(lambda leaf: leaf[:rows], self.state.clients)
        predict = jax.vmap(method.predict, in_axes=(None, 0), axis_size=rows)
        each = unstacked(jax.jit(predict)(self.state.server, clients))
        return each * count if method.pooled else each

    def unseen_variables(self) -> Variables:
        """The variables that predict for an unseen domain, stacked `[models, ...]`."""
        found: Variables = jax.device_get(jax.jit(self.outline.method.unseen)(self.state.server, self.state.clients))
        return found


@dataclasses.dataclass(frozen=True)
class TrainedRun(TrainedModels):
    """One seed of a trained run, with its data: `experiment` is the run's, with all its seeds."""

    experiment: Experiment

    @property
    def parts(self) -> Partition:
        """The seed's split of the data."""
        return self.experiment.parts[self.index]

    @property
    def federation(self) -> Federation:
        """The data for evaluation, with the seed's encoding and labels' scale; its tables are those of all seeds."""
        experiment, index = self.experiment, self.index
        return experiment.federation._replace(
            encoding=experiment.encodings[index], label_scale=experiment.label_scales[index]
        )

    def features(self, evaluated: Evaluated) -> list[np.ndarray]:
        """Each model's features of its samples, `[samples, m]`."""
        experiment = self.experiment
        return features_of_rows(experiment.model, self.federation, evaluated, experiment.config.eval_batch_size)

    def classes(self, evaluated: Evaluated) -> list[np.ndarray]:
        """The classes that each model predicts for its samples, int `[samples]`."""
        experiment = self.experiment
        return classes_of_rows(experiment.model, self.federation, evaluated, experiment.config.eval_batch_size)


def open_trained(path: Path, data_dir: str = "", seed: int | None = None, round_: str = LAST) -> TrainedRun:
    """One seed of the run in a folder, with its data.

    Args:
      path: the run's folder.
      data_dir: folder of the data, if it has moved since the run.
      seed: one of the run's seeds; None for the first.
      round_: whose state, see `kept_state`.

    Raises:
      UserError: no run, no checkpoint, no data, no such seed, or a round whose state is not kept.
    """
    experiment = rebuilt(path, data_dir)
    return trained_seed(experiment, path, index_of(experiment.seeds, seed, "--seed"), round_)


def trained_seed(experiment: Experiment, path: Path, index: int, round_: str = "") -> TrainedRun:
    """The seed at a position among those of the experiment that a run's folder holds; `round_`, and errors: see
    `kept_state`."""
    state, records = kept_state(experiment, path, index, round_)
    return TrainedRun(outline_of(experiment), state, index, records, experiment)


def open_models(path: Path, data_dir: str = "", seed: int | None = None, round_: str = "") -> TrainedModels:
    """`open_trained` without the data, which are read only for a run of an earlier version."""
    found = outline(path)
    if found is None:
        return open_trained(path, data_dir, seed, round_)
    index = index_of(seeds_of(found.config), seed, "--seed")
    state, records = kept_state(found, path, index, round_)
    return TrainedModels(found, state, index, records)


def of_seed(experiment: Experiment, state: State, records: Sequence[Sequence[Record]], seed: int | None) -> TrainedRun:
    """One seed of a trained experiment.

    Args:
      experiment: what was trained.
      state: that of all its seeds, with a leading seed axis if there are several.
      records: for each seed, those of its rounds.
      seed: None for the first.

    Raises:
      UserError: a seed that was not trained.
    """
    index = index_of(experiment.seeds, seed, "seed")
    own = each_seed(state, len(experiment.seeds))[index]
    return TrainedRun(outline_of(experiment), own, index, records[index], experiment)


def index_of(seeds: Sequence[int], seed: int | None, name: str) -> int:
    """The position of a seed among a run's seeds; `name`: of the argument that chose it. Raises like `of_seed`."""
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise UserError(f"{name} got {chosen}; expected one of the run's seeds, {seeds[0]} to {seeds[-1]}")
    return seeds.index(chosen)


def unstacked(models: Variables) -> list[Variables]:
    """The models of a stack `[models, ...]`, one by one."""
    count = len(jax.tree.leaves(models)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], models) for i in range(count)]
