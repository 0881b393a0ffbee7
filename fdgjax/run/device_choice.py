"""How many devices a run uses: chosen once, from the machine and the experiment, and recorded in its folder."""

import dataclasses
from pathlib import Path

import jax

from fdgjax.config import Config
from fdgjax.engine.devices import split_cpu
from fdgjax.run.records import begun_with
from fdgjax.utils.processor import cores
from fdgjax.utils.threads import settle_threads, suggested_threads, threads


def as_begun(config: Config, path: Path) -> Config:
    """The config with the number of devices that the folder's run began with, unless the config sets one or the folder
    holds no run.

    Raises:
      Damaged: the run's config differs from its checksum.
    """
    begun = {} if config.devices else begun_with(path)
    return dataclasses.replace(config, devices=begun["config"]["devices"]) if begun else config


def prepare_cpu(config: Config, path: Path, processes: int = 1) -> None:
    """Sets up the CPU before JAX starts: the number of threads that the folder's run began with, and the number of
    devices in the config, divided among the processes.

    A single process whose config leaves the number of devices open is not split here: the number is chosen once the
    clients of a round are known.

    Raises:
      Damaged: the run's config differs from its checksum.
    """
    settle_threads(threads_of(path) or suggested_threads())
    if config.devices or processes > 1:
        split_cpu(-(-config.devices // processes) or cores())


def threads_of(path: Path) -> int | None:
    """The number of threads that the folder's run began with; None if there is no run or it did not record one.

    Raises:
      Damaged: the run's config differs from its checksum.
    """
    return begun_with(path).get("threads")


def as_there_are(config: Config) -> Config:
    """The config of a trained run for further evaluation: with its own number of devices if so many are available,
    else with one, which gives the same figures up to rounding."""
    if config.devices:
        split_cpu(config.devices)
    return config if config.devices <= len(jax.devices()) else dataclasses.replace(config, devices=1)


def unlike_begun(config: Config, path: Path) -> str:
    """A note for a run that began with more threads than this machine has cores, or with another number of threads than
    this process has; else empty.

    Raises:
      Damaged: the run's config differs from its checksum.
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
