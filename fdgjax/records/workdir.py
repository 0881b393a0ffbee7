"""The run's folder: the experiment it belongs to, and its files."""

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fdgjax.config import Config, for_seed, identity, seeds_of, to_plain
from fdgjax.errors import UserError
from fdgjax.files import write_json


class Workdir(NamedTuple):
    """A run's folder and the files in it."""

    path: Path

    @property
    def config(self) -> Path:
        """The config with versions and seed."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One line of JSON per round."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The result; it exists once the run is finished."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        """Orbax checkpoints of the whole state."""
        return self.path / "checkpoints"

    @property
    def events(self) -> Path:
        """TensorBoard events."""
        return self.path / "tensorboard"


def open_workdir(path: Path, config: Config) -> Workdir:
    """The folder for this experiment, created where it does not exist.

    Raises:
      UserError: the folder holds another experiment (the first key that differs is named), or files that are no run.
    """
    workdir = Workdir(path)
    if workdir.config.exists():
        held = json.loads(workdir.config.read_text())["config"]
        if differing := difference(identity(to_plain(config)), identity(held)):
            key, ours, theirs = differing
            raise UserError(
                f"workdir {path} holds another experiment: config.{key} is {theirs} there and {ours} here; "
                "choose another --workdir, or repeat that run's command to continue it"
            )
        return workdir
    # A kill while the config was written leaves its unfinished copy, which belongs to no other program.
    if path.exists() and (not path.is_dir() or set(path.iterdir()) - set(path.glob(f".{workdir.config.name}.*"))):
        raise UserError(
            f"workdir {path} exists, is not empty and holds no config.json; expected a new or empty folder, "
            "or one made by a run; choose another --workdir"
        )
    path.mkdir(parents=True, exist_ok=True)
    write_json(workdir.config, {"config": to_plain(config), "versions": versions()})
    return workdir


def open_seeds(workdir: Workdir, config: Config) -> list[Workdir]:
    """Where each seed's records go: a folder for each, `seed_S`, or the run's own where it is the only one.

    A seed's folder holds what a run of that seed alone would leave, except for checkpoints.

    Raises:
      UserError: like `open_workdir`.
    """
    if config.seeds == 1:
        return [workdir]
    return [open_workdir(workdir.path / f"seed_{seed}", for_seed(config, seed)) for seed in seeds_of(config)]


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> tuple[str, Any, Any] | None:
    """The first key, in order, on which two nested configs disagree."""
    for key in sorted(set(ours) | set(theirs)):
        a, b = ours.get(key), theirs.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if found := difference(a, b, f"{prefix}{key}."):
                return found
        elif a != b:
            return f"{prefix}{key}", a, b
    return None


def versions() -> dict[str, str]:
    """The versions of Python, the platform and the libraries."""
    names = ("fdgjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
