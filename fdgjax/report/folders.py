"""Reads folders of runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fdgjax.config.provenance import REGISTERED, registering_files
from fdgjax.evaluation import figure_keys
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import reported
from fdgjax.experiments import DataDescription
from fdgjax.run.records import Workdir, description_of, read_config_file, read_records, read_summary
from fdgjax.run.records.workdir import seed_workdir
from fdgjax.utils.errors import UserError


class Seed(NamedTuple):
    """One seed of a run.

    records: a dict per round. figures: of the reported round, those of `figure_keys`; empty before the first
    evaluation. summary: empty where the run is not finished.
    """

    seed: int
    folder: Path
    records: list[Record]
    figures: Record
    summary: Record


class Folder(NamedTuple):
    """The results of one command: its folder, config, versions and seeds, the commit, '' where none is recorded, the
    files that register its method, model or data, and what is said of its data, None where nothing is."""

    path: Path
    config: Record
    versions: dict[str, str]
    seeds: list[Seed]
    commit: str = ""
    registering: Sequence[str] = ()
    data: DataDescription | None = None


def run_folders(path: Path) -> list[Path]:
    """The folders of runs at or below `path`; seeds' own folders are part of their run's.

    Raises:
      UserError: none, or a folder that cannot be read.
    """

    def below(folder: Path) -> Iterator[Path]:
        if Workdir(folder).config.is_file():
            yield folder
            return
        for inner in sorted(folder.iterdir()):
            # Not a link to a folder that holds it.
            if inner.is_dir() and not folder.resolve().is_relative_to(inner.resolve()):
                yield from below(inner)

    try:
        found = list(below(path)) if path.is_dir() else []
    except OSError as error:
        raise UserError(f"RUNS got '{path}', which cannot be read ({error}); expected folders of runs") from error
    if not found:
        raise UserError(
            f"RUNS got '{path}', which holds no run; expected folders that fdgjax train --workdir or "
            "fdgjax sweep --out made"
        )
    return found


def read_run_folder(path: Path) -> Folder:
    """A run's config, in which keys that a run of an earlier version lacks have their defaults, and the records of its
    seeds."""
    try:
        content = read_config_file(Workdir(path))
        config, first, count = content["config"], content["config"]["seed"], content["config"]["seeds"]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{Workdir(path).config} has no {error}; expected the config.json of a run of this version"
        ) from error
    numbers = range(first, first + count)
    places = [Workdir(path)] if count == 1 else [seed_workdir(Workdir(path), seed) for seed in numbers]
    seeds = [read_seed(*pair, config["selection"]) for pair in zip(places, numbers, strict=True)]
    files = registering_files(content.get(REGISTERED, {}))
    return Folder(
        path, config, content.get("versions", {}), seeds, content.get("commit", ""), files, description_of(path)
    )


def read_seed(workdir: Workdir, seed: int, selection: str) -> Seed:
    """One seed's records; of an unfinished run, the figures that its selection rule would report now."""
    records = read_records(workdir)
    summary = read_summary(workdir) if workdir.summary.is_file() else {}
    chosen = summary or reported(records, selection)
    figures = {name: chosen[name] for name in figure_keys() if name in chosen}
    return Seed(seed, workdir.path, records, figures, summary)
