"""Experiments from Python: built from a name or on arrays, trained with or without a run folder, and reopened."""

import contextlib
import copy
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from rich.console import Console as RichConsole

from fdgjax.api.contributions import Contributions, train_coalitions
from fdgjax.api.results import Result
from fdgjax.api.settings import config_from, set_values, with_target
from fdgjax.config import Config, read_config, to_plain
from fdgjax.config.register import register_method, register_model
from fdgjax.data.sources.arrays import Arrays, GivenData, arrays_name, domains_of
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import DATASETS, Found
from fdgjax.distributed import Stop, process_group
from fdgjax.engine.devices import split_cpu
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import Experiment, build
from fdgjax.inference.kept_rounds import LAST, kept_states
from fdgjax.inference.safeguards import keep_safeguards
from fdgjax.methods import Entry
from fdgjax.models.user_module import Network
from fdgjax.run.console import Console
from fdgjax.run.device_choice import as_begun
from fdgjax.run.loop import Observer, Progress, keep_records
from fdgjax.run.records import Workdir, check_place, finished
from fdgjax.run.reopen import reopen, restored
from fdgjax.run.runner import Interrupted, means_of, run_experiment, train_with_records
from fdgjax.run.summaries import of_all_seeds
from fdgjax.sweeps.coalitions import coalitions_of
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lent

Callback = Callable[[Record], Any]
"""Called with each round's record; a true result stops the training. With several seeds, the record has the round, the
means of the figures, and each seed's own record under `seeds`."""


def experiment(
    method: str | Entry | ConfigDict,
    /,
    *,
    data: Arrays | None = None,
    target: str | None = None,
    classes: Sequence[str] | None = None,
    model: str | Network | None = None,
    **keys: Any,
) -> "Trainer":
    """An experiment, built and checked, ready to train.

    Args:
      method: `METHOD[:PRESET]`, as `--config` takes it (`"hfedf:pacs"`), a config file, or the `Entry` of a
        user-defined method.
      data: arrays `{domain: (inputs, labels)}`, instead of the preset's data set: images uint8 `[n, H, W, channels]`,
        or numbers `[n, ...]` of any shape; labels whole numbers `[n]` from 0, or, with `task="regression"`, floats.
      target: the unseen domain; None for the preset's, or the first domain of `data`.
      classes: the names of the classes of `data`, in the order of the labels; None uses the numbers.
      model: a name (`fdgjax models`), a linen module called as `module(images, train=...)`, an nnx module wrapped by
        `flax.nnx.bridge.to_linen`, or a function from the number of outputs to such a module. None for the preset's.
      keys: any key of the config, with `__` for a dot: `rounds=20`, `method__tau=0.5`; or
        `**{"method.tau": 0.5}`.

    Raises:
      UserError: a name, key, value, array or network that does not fit; the message says how to fix it.
    """
    given = named_arrays(data, classes)
    with lending(given):
        config = config_from(method, given, model)
        set_values(config, with_target(keys, target))
        asked = read_config(config)
        if asked.devices:
            split_cpu(asked.devices)
        return Trainer(asked, build(asked), given)


def open_run(
    path: str | os.PathLike[str],
    *,
    method: Entry | None = None,
    data: Arrays | None = None,
    classes: Sequence[str] | None = None,
    model: Network | None = None,
    data_dir: str = "",
    round: int | str = LAST,
) -> Result:
    """Opens a run's folder: a state with the models, its records, and the summary of a finished run.

    Args:
      path: the folder.
      method, data, classes, model: the user-defined ones that the run was trained with, as for `experiment`; registered
        ones may be left out.
      data_dir: folder of the data, if it has moved since the run.
      round: whose state: `last`, `selected` by `config.selection`, or a number, as far as states are kept.

    Raises:
      UserError: no run, a round whose state is not kept, or the run's method, model or data is neither given nor
        registered; the message names it.
    """
    given = named_arrays(data, classes)
    if method is not None:
        register_method(method)
    folder, network = Path(path), "" if model is None else register_model("", model, origin="")
    with lending(given):
        opened = reopen(folder, data_dir)
    if network and network != (own := opened.experiment.config.model.name):
        raise UserError(
            f"model got the network '{network}', and {folder} was trained with '{own}'; expected the same network, or "
            "none where that is registered"
        )
    if round != LAST:
        opened = opened._replace(state=kept_states(opened.experiment, folder, str(round)))
    summary = finished(Workdir(folder), logging.getLogger("fdgjax").warning)
    return Result(opened.experiment, opened.state, opened.history.records, summary, folder)


def named_arrays(data: Arrays | None, classes: Sequence[str] | None) -> dict[str, Domains]:
    """The given arrays as a data set, under a name derived from their content; empty without arrays. Raises like
    `experiment`."""
    if data is None and classes is not None:
        raise UserError("classes got names, but there is no data; expected data={domain: (inputs, labels)} with them")
    if data is None:
        return {}
    found = domains_of(data, classes)
    return {arrays_name(found): found}


def lending(given: Mapping[str, Domains]) -> contextlib.AbstractContextManager[None]:
    """A context within which the given arrays are in the registry of data sets."""
    added: dict[str, Callable[[str], Found]] = {name: GivenData(found) for name, found in given.items()}
    return lent(DATASETS, added)


@dataclasses.dataclass(frozen=True)
class Trainer:
    """An experiment that can be trained.

    asked: the config as requested; its number of devices may still be undecided.
    built: the experiment, see `fdgjax.experiments.Experiment`. given: the arrays, by their name in the config.
    """

    asked: Config = dataclasses.field(repr=False)
    built: Experiment
    given: Mapping[str, Domains] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def config(self) -> Config:
        """All keys with their values, including the number of devices that was chosen if none was requested."""
        return self.built.config

    def __repr__(self) -> str:
        config = self.config
        return f"<fdgjax experiment: {config.method.name} on {config.data.name}, {config.rounds} rounds>"

    def train(
        self,
        workdir: str | os.PathLike[str] | None = None,
        on_round: Callback | None = None,
        *,
        verbose: bool = False,
    ) -> Result:
        """Trains, and returns the result.

        Args:
          workdir: a folder. The run equals that of `fdgjax train --workdir` bit for bit: it is recorded, resumed where
            it stopped, and not repeated once finished. None trains in memory and writes nothing.
          on_round: called with a copy of the record of each round that is trained. Training stops after the round for
            which it returns a true value, and that round is saved; an exception that it raises ends the training at
            once.
          verbose: whether to print what the command line prints.

        Raises:
          UserError: like `fdgjax train`.
        """
        stop, shown = threading.Event(), Console(RichConsole(quiet=not verbose))

        def tell(progress: Progress) -> None:
            # A copy: the records are the run's own, and are saved with its state.
            if on_round is not None and on_round(copy.deepcopy(as_one(progress.records))):
                stop.set()

        observers = [] if on_round is None else [tell]
        if workdir is None:
            return in_memory(self.built, shown, stop, observers)
        path = Path(workdir)
        check_place(path)
        begun = as_begun(self.asked, path)
        with lending(self.given):
            built = self.built if begun.devices in (0, self.config.devices) else build(begun)
            with process_group():
                try:
                    summary = run_experiment(built, path, shown, stop, observers)
                    keep_safeguards(built, path)
                except Interrupted:
                    summary = {}
            opened = restored(built, path)
        return Result(built, opened.state, opened.history.records, summary, path)

    def contributions(self, out: str | os.PathLike[str], orders: int = 0) -> Contributions:
        """What each client contributes: trains every coalition of the clients, as `fdgjax contributions` does: on one
        device unless the config has several, and with no log but the runs' own.

        Args:
          out: a folder of the runs; if it has some already, the others are trained.
          orders: how many random orders of the clients instead of all coalitions; 0 for the command's default.

        Raises:
          UserError: clients that do not each hold one domain or have no labels, or a run that failed.
        """
        with lending(self.given):
            config = ConfigDict(to_plain(self.asked))
            config.devices, config.writers = config.devices or 1, ""
            return train_coalitions(coalitions_of(config, orders), Path(out))


def as_one(records: Sequence[Record]) -> Record:
    """Merges the seeds' records of a round into one; a single seed's record is returned unchanged."""
    if len(records) == 1:
        return records[0]
    spent = {key: records[0][key] for key in ("privacy_epsilon",) if key in records[0]}
    return {"round": records[0]["round"], **means_of(records), **spent, "seeds": list(records)}


def in_memory(built: Experiment, shown: Console, stop: Stop, observers: Sequence[Observer]) -> Result:
    """Trains from the first round on, without writing files."""
    last: list[Progress] = []
    records: list[list[Record]] = [[] for _ in built.seeds]

    def keep_last(progress: Progress) -> None:
        last[:] = [progress]

    try:
        following = [keep_last, keep_records(records), *observers]
        summary = of_all_seeds(train_with_records(built, (), shown, stop, following))
    except Interrupted:
        summary = {}
    state = last[0].state
    assert state is not None, "an observer gets it"
    return Result(built, state, records, summary, None)
