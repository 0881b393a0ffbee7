"""Reopens a trained run with its state, for further evaluation."""

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.config import Config, DataConfig, from_plain
from fdgjax.config.provenance import check_registered
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import DATASETS, Found
from fdgjax.data.sources.split_lists import lists_within
from fdgjax.engine import State
from fdgjax.experiments import Experiment, Outline, build, make_outline
from fdgjax.models.frozen import check_content
from fdgjax.run.compilation import state_shapes
from fdgjax.run.device_choice import as_there_are
from fdgjax.run.records import (
    Checkpoint,
    History,
    Workdir,
    description_of,
    newest_checkpoint,
    read_config_file,
    read_description,
)
from fdgjax.utils.checksums import Damaged
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lent

LOGGER = logging.getLogger(__name__)


class Reopened(NamedTuple):
    """A trained run: its experiment, the state of its newest checkpoint, and the records up to it."""

    experiment: Experiment
    state: State
    history: History


def config_of(path: Path, data_dir: str = "", *, needs_data: bool = True) -> Config:
    """The config of a run's folder.

    Args:
      path: the folder.
      data_dir: folder of the data, if it has moved since the run.
      needs_data: whether a user-defined data set of the run has to be registered.

    Raises:
      UserError: the folder holds no run, a run of a version with other config keys, or a run whose method, model or
        data set is not registered.
    """
    file = Workdir(path).config
    if not file.is_file():
        raise UserError(f"{path} holds no config.json; expected the folder of a run, as --workdir named it")
    content = read_config_file(Workdir(path))
    name = content["config"]["data"]["name"]
    named_only: dict[str, Callable[[str], Found]] = {name: partial(refuse_to_load, name)}
    with lent(DATASETS, {} if needs_data or name in DATASETS else named_only):
        check_registered(str(path), content)
        try:
            config = from_plain(content["config"])
        except (TypeError, UserError) as error:
            raise UserError(
                f"{file} cannot be read ({error}); expected the config of a run of this version; repeat the run"
            ) from error
    return dataclasses.replace(config, data=moved(config.data, data_dir)) if data_dir else config


def moved(where: DataConfig, data_dir: str) -> DataConfig:
    """The config of data that moved to `data_dir`, with the lists of images that lie in their folder."""
    inside = lists_within(where.name, where.split, where.dir)
    return dataclasses.replace(
        where, dir=data_dir, split=where.split if inside is None else str(Path(data_dir) / inside)
    )


def refuse_to_load(name: str, data_dir: str) -> Domains:
    """Instead of loading a data set that is not registered; raises a `UserError`."""
    del data_dir
    raise UserError(f"the data set '{name}' is not registered; expected to be needed by its name only")


def outline(path: Path) -> Outline | None:
    """The outline of a run's experiment, without its data; None for a run of an earlier version, whose folder does not
    describe its data, and for a damaged description, which is logged.

    Raises:
      UserError: the folder holds no run, or a run of another version.
    """
    config = config_of(path, needs_data=False)
    try:
        data = read_description(Workdir(path))
    except Damaged as error:
        LOGGER.warning(f"{error}: the run's data are read instead")
        return None
    return None if data is None else make_outline(as_there_are(config), data)


def reopen(path: Path, data_dir: str = "", **changes: Any) -> Reopened:
    """The experiment of a run's folder, built again, and its newest state.

    Args:
      path: the folder; for a run with several seeds, the one that contains the seeds' folders.
      data_dir: folder of the data, if it has moved since the run.
      changes: new values of config keys that concern evaluation only.

    Raises:
      UserError: the folder holds no run, a run of another version, or a run without a checkpoint.
    """
    return restored(rebuilt(path, data_dir, **changes), path)


def rebuilt(path: Path, data_dir: str = "", **changes: Any) -> Experiment:
    """The experiment of a run's folder, built again; arguments and errors as those of `reopen`."""
    experiment = build(as_there_are(dataclasses.replace(config_of(path, data_dir), **changes)))
    begun = description_of(path)
    check_content(experiment.trunk, begun.trunk if begun else "", experiment.config.model.pretrained)
    return experiment


def restored(experiment: Experiment, path: Path) -> Reopened:
    """The experiment of a run's folder with its newest state.

    Raises:
      UserError: a folder without a checkpoint.
    """
    newest = checkpoint_of(experiment, path)
    return Reopened(experiment, newest.state, newest.history)


def checkpoint_of(experiment: Experiment | Outline, path: Path, latest: int | None = None) -> Checkpoint:
    """The newest checkpoint in a run's folder, or the newest up to the round `latest`.

    Raises:
      UserError: a folder without a checkpoint.
    """
    folder = Workdir(path).checkpoints
    if not folder.is_dir():
        raise UserError(
            f"{path} holds no checkpoints; expected the folder of a run that has begun, for several seeds the one "
            "that holds them all"
        )
    newest = newest_checkpoint(folder, state_shapes(experiment), LOGGER.warning, latest)
    if newest is None:
        raise UserError(f"{folder} holds no checkpoint yet; expected a run that has saved one")
    return newest
