"""A run's folder: the files in it, and checks that it belongs to the experiment."""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict

from fdgjax.config import Config, completed, experiment_identity, for_seed, seeds_of, to_plain
from fdgjax.config.provenance import PROGRAM, REGISTERED, program_of, provenance
from fdgjax.evaluation.metrics import Record
from fdgjax.experiments import DataDescription, from_description, to_description
from fdgjax.methods import METHODS
from fdgjax.run.records.versions import commit, library_versions, versions
from fdgjax.utils.checksums import Damaged, read_checked_json, sha256, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import NoLocksError, lock, make_folder, sync
from fdgjax.utils.threads import threads

LOOK = 1.0
"""Seconds that a run waits for its folder's lock, which `fdgjax runs` takes for a moment to see whether it is free."""
METRICS_CHECKSUM = "metrics_sha256"
"""The key of `summary.json` with the SHA-256 of `metrics.jsonl`; the summary over several seeds has no such key."""


class InUseError(UserError):
    """Another process trains in the folder."""


class Workdir(NamedTuple):
    """A run's folder and the files in it."""

    path: Path

    @property
    def config(self) -> Path:
        """The config with versions, commit and seed."""
        return self.path / "config.json"

    @property
    def data(self) -> Path:
        """The names and shapes of the data that the models need to predict."""
        return self.path / "data.json"

    @property
    def metrics(self) -> Path:
        """One line of JSON per round."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The result; it exists once the run is finished."""
        return self.path / "summary.json"

    @property
    def safeguards(self) -> Path:
        """What predictions are compared with, see `fdgjax.inference.safeguards`."""
        return self.path / "safeguards.npz"

    @property
    def lock(self) -> Path:
        """Locked by the process that trains; it contains the process's id and host."""
        return self.path / ".lock"

    @property
    def checkpoints(self) -> Path:
        """Orbax checkpoints of the whole state."""
        return self.path / "checkpoints"


@contextlib.contextmanager
def own_workdir(path: Path, config: Config, warn: Callable[[str], None]) -> Iterator[Workdir]:
    """`lock_workdir` and `open_workdir`, whose errors come before anything is written."""
    check_workdir(path, config)
    with lock_workdir(path, warn):
        yield open_workdir(path, config)


@contextlib.contextmanager
def lock_workdir(path: Path, warn: Callable[[str], None]) -> Iterator[None]:
    """Makes the folder, locked against other processes until the end of the block.

    The lock is released when its process ends, even if it is killed. On a file system without locks, `warn` is called.

    Raises:
      InUseError: another process trains there; then nothing is written.
      OSError: the lock's file cannot be written.
    """
    make_folder(path)
    workdir = Workdir(path)
    with contextlib.ExitStack() as held:
        try:
            mine = held.enter_context(lock(workdir.lock, LOOK))
        except NoLocksError as error:
            mine = True
            warn(f"workdir {path} is on a file system without locks ({error}): nothing keeps a second process out")
        if not mine:
            raise InUseError(
                f"workdir {path} is in use by process {workdir.lock.read_text().strip() or 'unknown'}; expected a "
                "folder in which nothing runs; wait for that process, or choose another folder"
            )
        workdir.lock.write_text(f"{os.getpid()} on {socket.gethostname()}\n")
        yield


def open_workdir(path: Path, config: Config) -> Workdir:
    """The folder for this experiment, created if it does not exist.

    Raises:
      UserError: the folder holds another experiment (the message names the first key that differs), files that do not
        belong to a run, or a damaged config.
    """
    workdir = Workdir(path)
    check_workdir(path, config)
    if not workdir.config.exists():
        make_folder(path)
        facts = {"versions": versions(), "commit": commit(), "threads": threads(), **provenance(config)}
        write_checked_json(workdir.config, {"config": to_plain(config), **facts})
    return workdir


def check_workdir(path: Path, config: Config) -> None:
    """Raises a `UserError` if the folder cannot be used for this experiment; see `open_workdir`."""
    workdir = Workdir(path)
    check_place(path)
    if workdir.config.exists():
        held = read_config_file(workdir)["config"]
        ours, theirs = (experiment_identity(plain) for plain in (to_plain(config), held))
        # The other keys of another method follow from its name.
        own, other = ({"method.name": plain["method"]["name"]} for plain in (ours, theirs))
        if differing := first_difference(own, other) or first_difference(ours, theirs):
            key, asked, there = differing
            raise UserError(
                f"workdir {path} holds another experiment: config.{key} is {there} there and {asked} here; "
                "choose another folder, or repeat that run's command to continue it"
            )


def check_place(path: Path) -> None:
    """Raises a `UserError` if the folder cannot be used for any run."""
    workdir = Workdir(path)
    # Listed before the config is looked for: another process may be making it.
    held = {file.name for file in path.iterdir()} if path.is_dir() else set[str]()
    if workdir.config.exists():
        read_config_file(workdir)
        return
    # A kill while the config is being written leaves its temporary file, which is this package's own.
    others = [name for name in held if name != workdir.lock.name and not name.startswith(f".{workdir.config.name}.")]
    if others or (path.exists() and not path.is_dir()):
        raise UserError(
            f"workdir {path} exists, is not empty and holds no config.json; expected a new or empty folder, "
            "or one made by a run; choose another folder"
        )
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"workdir {path} cannot be made: {above} cannot be written; choose another folder")


def read_config_file(workdir: Workdir) -> dict[str, Any]:
    """The content of a run's `config.json`: its config, versions, commit, threads, and the names that a user's program
    registered. Config keys that this package gained after the run began have their defaults.

    Raises:
      Damaged: the file differs from its checksum.
    """
    try:
        content = read_checked_json(workdir.config)
    except Damaged as error:
        raise Damaged(f"{error}; restore it from a copy, or choose another folder") from error
    return {**content, "config": completed(content["config"])}


def begun_with(path: Path) -> dict[str, Any]:
    """`read_config_file` of the run in a folder; empty if there is none."""
    workdir = Workdir(path)
    return read_config_file(workdir) if workdir.config.is_file() else {}


def note_programs(path: Path) -> str:
    """A note for a folder whose run began with other versions of the libraries, at another commit, or with another
    program of a user's method than it goes on with; else empty. What its `config.json` does not record is not compared;
    without an entry for the commit, it is of an earlier version."""
    content = begun_with(path)
    there = {**content.get("versions", {}), "commit": content.get("commit", "")}
    here = {**library_versions(), "commit": commit()}
    method = content.get(REGISTERED, {}).get("method.name", {})
    if method.get(PROGRAM) and method["name"] in METHODS:
        what = f"method '{method['name']}' as"
        there, here = {**there, what: method[PROGRAM]}, {**here, what: program_of(METHODS[method["name"]])}
    names = [name for name, own in here.items() if own and there.get(name) and there[name] != own]
    then, now = (", ".join(f"{name} {found[name]}" for name in names) for found in (there, here))
    if content and "commit" not in content:
        then, now = (", ".join(filter(None, words)) for words in (("an earlier fdgjax", then), ("this one", now)))
    return f"the run began with {then} and goes on with {now}: its numbers may change" if then else ""


def write_description(workdir: Workdir, data: DataDescription) -> None:
    """Writes `data.json`, unless it is there and undamaged; raises like `check_data`."""
    check_data(workdir, data.content, data.trunk)
    with contextlib.suppress(Damaged):
        if read_description(workdir) is not None:
            return
    write_checked_json(workdir.data, from_description(data))


def check_data(workdir: Workdir, content: str, trunk: str) -> None:
    """Raises a `UserError` if the folder's run was begun with data of another `content_digest`, wherever they lie, or
    with other weights of frozen stages, by `Trunk.content`; paths are no part of an experiment. Folders without a
    digest, or with a damaged description, are not compared."""
    with contextlib.suppress(Damaged):
        begun = read_description(workdir)
        if begun is not None and begun.content and begun.content != content:
            raise UserError(
                f"workdir {workdir.path} holds a run of other data: their digest is {begun.content} there and "
                f"{content} here; choose another folder, or give that run the data it was begun with"
            )
        if begun is not None and begun.trunk and begun.trunk != trunk:
            raise UserError(
                f"workdir {workdir.path} holds a run with other weights of the frozen stages: their digest is "
                f"{begun.trunk} there and {trunk or 'none'} here; choose another folder, or give "
                "config.model.pretrained the file it was begun with"
            )


def read_description(workdir: Workdir) -> DataDescription | None:
    """What `write_description` wrote; None for a run of an earlier version, which has no such file.

    Raises:
      Damaged: the file differs from its checksum.
    """
    return to_description(read_checked_json(workdir.data)) if workdir.data.is_file() else None


def description_of(path: Path) -> DataDescription | None:
    """The description in a run's folder; None if there is none, or it is damaged."""
    with contextlib.suppress(Damaged):
        return read_description(Workdir(path))
    return None


def read_records(workdir: Workdir) -> list[Record]:
    """The rounds in `metrics.jsonl`, none if there is no such file; a last line that a kill cut short is left out."""
    records = list[Record]()
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        for line in workdir.metrics.read_text().splitlines():
            records.append(json.loads(line))
    return records


def finished(workdir: Workdir, warn: Callable[[str], None]) -> dict[str, Any]:
    """The summary of a finished run; empty for an unfinished run, and for a run whose records, or a seed's, are damaged
    (then `warn` is called)."""
    try:
        summary = read_summary(workdir)
        for seed in summary.get("seeds", ()):
            read_summary(seed_workdir(workdir, seed))
    except FileNotFoundError:
        return {}
    except Damaged as error:
        warn(f"{error}: the run is not taken as finished")
        return {}
    return summary


def write_summary(workdir: Workdir, summary: Mapping[str, Any]) -> None:
    """Writes `summary.json`, with the checksum of the run's `metrics.jsonl`, which is flushed to disk first."""
    sync(workdir.metrics)
    write_checked_json(workdir.summary, {**summary, METRICS_CHECKSUM: sha256(workdir.metrics)})


def read_summary(workdir: Workdir) -> dict[str, Any]:
    """What `write_summary` wrote, without the checksum.

    Raises:
      FileNotFoundError: the run is not finished.
      Damaged: the summary or `metrics.jsonl` differs from its checksum.
    """
    summary = read_checked_json(workdir.summary)
    kept = summary.pop(METRICS_CHECKSUM, None)
    if kept and not workdir.metrics.is_file():
        raise Damaged(f"{workdir.metrics} is missing beside its summary; the command that trained the run restores it")
    if kept and kept != sha256(workdir.metrics):
        raise Damaged(
            f"{workdir.metrics} is damaged: it does not have the checksum that its summary holds; the command that "
            "trained the run restores it"
        )
    return summary


def open_seeds(workdir: Workdir, config: Config) -> list[Workdir]:
    """The folder of each seed's records: `seed_S`, or the run's own folder if there is only one seed.

    A seed's folder holds what a run of that seed alone would write, except for checkpoints.

    Raises:
      UserError: like `open_workdir`.
    """
    if config.seeds == 1:
        return [workdir]
    return [open_workdir(seed_workdir(workdir, seed).path, for_seed(config, seed)) for seed in seeds_of(config)]


def seed_workdir(workdir: Workdir, seed: int) -> Workdir:
    """The folder of one of several seeds."""
    return Workdir(workdir.path / f"seed_{seed}")


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first key, in order, on which two nested configs disagree."""
    a, b = (flatten_dict(dict(plain), sep=".") for plain in (ours, theirs))
    return next(((key, a.get(key), b.get(key)) for key in sorted({*a, *b}) if a.get(key) != b.get(key)), None)
