"""Reopens a trained run with its state, for further evaluation."""

import dataclasses
import logging
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.config import Config, from_plain
from fdgjax.config.register import check_registered
from fdgjax.engine import State
from fdgjax.experiments import Experiment, build
from fdgjax.run.compilation import state_shapes
from fdgjax.run.device_choice import as_there_are
from fdgjax.run.records import History, Workdir, newest_checkpoint, read_config_file
from fdgjax.utils.errors import UserError

LOGGER = logging.getLogger(__name__)


class Reopened(NamedTuple):
    """A trained run: its experiment, the state of its newest checkpoint, and the records up to it."""

    experiment: Experiment
    state: State
    history: History


def config_of(path: Path, data_dir: str = "") -> Config:
    """The config of a run's folder.

    Args:
      path: the folder.
      data_dir: folder of the data, if it has moved since the run.

    Raises:
      UserError: the folder holds no run, a run of a version with other config keys, or a run whose method, model or
        data set is not registered.
    """
    file = Workdir(path).config
    if not file.is_file():
        raise UserError(f"{path} holds no config.json; expected the folder of a run, as --workdir named it")
    content = read_config_file(Workdir(path))
    check_registered(str(path), content)
    try:
        config = from_plain(content["config"])
    except (TypeError, UserError) as error:
        raise UserError(
            f"{file} cannot be read ({error}); expected the config of a run of this version; repeat the run"
        ) from error
    return dataclasses.replace(config, data=dataclasses.replace(config.data, dir=data_dir)) if data_dir else config


def reopen(path: Path, data_dir: str = "", **changes: Any) -> Reopened:
    """The experiment of a run's folder, built again, and its newest state.

    Args:
      path: the folder; for a run with several seeds, the one that contains the seeds' folders.
      data_dir: folder of the data, if it has moved since the run.
      changes: new values of config keys that concern evaluation only.

    Raises:
      UserError: the folder holds no run, a run of another version, or a run without a checkpoint.
    """
    return restored(build(as_there_are(dataclasses.replace(config_of(path, data_dir), **changes))), path)


def restored(experiment: Experiment, path: Path) -> Reopened:
    """The experiment of a run's folder with its newest state.

    Raises:
      UserError: a folder without a checkpoint.
    """
    folder = Workdir(path).checkpoints
    if not folder.is_dir():
        raise UserError(
            f"{path} holds no checkpoints; expected the folder of a run that has begun, for several seeds the one "
            "that holds them all"
        )
    newest = newest_checkpoint(folder, state_shapes(experiment), LOGGER.warning)
    if newest is None:
        raise UserError(f"{folder} holds no checkpoint yet; expected a run that has saved one")
    return Reopened(experiment, *newest)
