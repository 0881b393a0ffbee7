"""How many devices a run has: chosen once, from the machine and the experiment, and kept in its folder."""

import dataclasses
from pathlib import Path

import jax

from fdgjax.config import Config
from fdgjax.engine.devices import split_cpu
from fdgjax.run.records import Workdir, read_config_file
from fdgjax.utils.threads import cores, settle_threads, suggested_threads, threads


def as_begun(config: Config, path: Path) -> Config:
    """The config with the number of devices of the run in the folder, where there is one and none is asked for.

    Raises:
      Damaged: the run's config is not what was written.
    """
    workdir = Workdir(path)
    if config.devices or not workdir.config.is_file():
        return config
    return dataclasses.replace(config, devices=read_config_file(workdir)["config"]["devices"])


def prepare_cpu(config: Config, path: Path, processes: int = 1) -> None:
    """Before JAX starts: as many threads as when the folder's run began, and the config's devices, of which each of
    several processes makes its share. Where their number is open, it waits until a round's clients are known.

    Raises:
      Damaged: the run's config is not what was written.
    """
    settle_threads(threads_of(path) or suggested_threads())
    if config.devices or processes > 1:
        split_cpu(-(-config.devices // processes) or cores())


def threads_of(path: Path) -> int | None:
    """Those on which the folder's run began; None where there is none or it does not say.

    Raises:
      Damaged: the run's config is not what was written.
    """
    workdir = Workdir(path)
    return read_config_file(workdir).get("threads") if workdir.config.is_file() else None


def as_there_are(config: Config) -> Config:
    """The config of a trained run for further evaluation: on its own number of devices where that can still be had,
    else on one, with the same figures to rounding."""
    if config.devices:
        split_cpu(config.devices)
    return config if config.devices <= len(jax.devices()) else dataclasses.replace(config, devices=1)


def unlike_begun(config: Config, path: Path) -> str:
    """What to know about a run that began on another machine, or with other threads; empty for others.

    Raises:
      Damaged: the run's config is not what was written.
    """
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return ""
    here = threads()
    begun = threads_of(path) or here
    if begun != here:
        return (
            f"the run began with {begun} threads and this process has {here}, which JAX cannot change once it has "
            "started: it goes on with the same numbers to rounding; for the same bits give it a process of its own"
        )
    if begun > max(cores(), config.devices):
        return (
            f"the run began with {begun} threads and this machine has {cores()} cores: it goes on with the numbers it "
            "would have had, more slowly; in another --workdir it would begin again"
        )
    return ""
