"""Reads folders of runs: joins the seeds of one experiment, and finds the settings in which experiments differ."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict

from fdgjax.config import INCIDENTAL
from fdgjax.config.register import REGISTERED, registering_files
from fdgjax.evaluation import FIGURE_KEYS
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import ORACLE, reported
from fdgjax.experiments import DataDescription
from fdgjax.report.naming import short_names
from fdgjax.report.trained_states import TrainedState
from fdgjax.run.records import Workdir, description_of, read_config_file, read_lines, read_summary
from fdgjax.utils.errors import UserError

ROWS = ("method.name", "data.target")
"""Keys that every table shows anyway."""

EVERY_DOMAIN = "every domain"
"""What a run is tested on that has no unseen one by its protocol."""

TRAINING = ("data.image_size", "data.crop_size", "data.augmentation", "data.streaming")
"""Keys of the data that say how they are shown to a network: runs that differ in them are tested on the same."""
CONTENT = (
    *("task", "data.name", "data.image_size", "data.same_images"),
    *("data.label", "data.categorical", "data.ignored", "data.missing"),
)
"""Keys by which the same files are other samples."""


class Seed(NamedTuple):
    """One seed of a run.

    records: a dict per round. figures: of the reported round, those of `FIGURE_KEYS`; empty before the first
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


class Run(NamedTuple):
    """One experiment with all its seeds, from one folder or several.

    series: its method, with a few settings that tell the method's runs on this data set apart, or a number; each series
    has its own colour.
    panel: the unseen domain, likewise with settings of the data; each has its own panel in a figure.
    settings: all keys that differ between the runs, as words.
    facts: sizes and traffic, as in `summary.json`; without traffic where no seed has finished.
    trained_state: its trained state; None where it could not be opened, and `missed` says why.
    published: a paper's figures for this experiment, in [0, 1], by the key of our own.
    """

    method: str
    target: str
    series: str
    panel: str
    settings: dict[str, str]
    folders: list[Folder]
    facts: Record
    trained_state: TrainedState | None = None
    missed: str = ""
    published: Mapping[str, float] = MappingProxyType({})

    @property
    def seeds(self) -> list[Seed]:
        """The seeds of all folders."""
        return [seed for folder in self.folders for seed in folder.seeds]

    @property
    def unfinished(self) -> bool:
        """Whether a seed has rounds to come."""
        return not all(seed.summary for seed in self.seeds)

    @property
    def oracle(self) -> bool:
        """Whether its round is chosen by the labels of the unseen domain: an upper bound, and no result."""
        return any(folder.config["selection"] == ORACLE for folder in self.folders)

    @property
    def name(self) -> str:
        """Series and panel."""
        return f"{self.series}, {self.panel}"

    @property
    def label(self) -> str:
        """The series, marked by `marked_name`."""
        return marked_name(self.series, [self])

    def values(self, figure: str) -> list[Any]:
        """A figure of the reported round, of each seed that has it."""
        return [seed.figures[figure] for seed in self.seeds if figure in seed.figures]


def marked_name(name: str, runs: Sequence[Run]) -> str:
    """The displayed name of runs, marked where all or some are unfinished or choose their round as an oracle."""
    for mark, marked in (("unfinished", [run.unfinished for run in runs]), (ORACLE, [run.oracle for run in runs])):
        name += f" ({mark})" if all(marked) else f" (some {mark})" if any(marked) else ""
    return name


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in folders of runs, or in folders that hold such.

    Raises:
      UserError: a folder without any run, or a run whose files cannot be read.
    """
    found = {path.resolve(): (path, given) for given in paths for path in run_folders(given)}
    return together([read_run_folder(path) for path, _ in found.values()], [given for _, given in found.values()])


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
    places = [path] if count == 1 else [path / f"seed_{seed}" for seed in range(first, first + count)]
    seeds = [read_seed(place, first + i, config["selection"]) for i, place in enumerate(places)]
    files = registering_files(content.get(REGISTERED, {}))
    return Folder(
        path, config, content.get("versions", {}), seeds, content.get("commit", ""), files, description_of(path)
    )


def read_seed(path: Path, seed: int, selection: str) -> Seed:
    """One seed's records; of an unfinished run, the figures that its selection rule would report now."""
    workdir = Workdir(path)
    records = list(read_lines(workdir.metrics)) if workdir.metrics.is_file() else []
    summary = read_summary(workdir) if workdir.summary.is_file() else {}
    chosen = summary or reported(records, selection)
    figures = {name: chosen[name] for name in FIGURE_KEYS if name in chosen}
    return Seed(seed, path, records, figures, summary)


def together(folders: Sequence[Folder], given: Sequence[Path]) -> list[Run]:
    """Joins folders that differ only in their seeds into one run, in the order of the folders; see `distinguished`.

    Args:
      folders: of the runs.
      given: for each, the argument that it was found in.
    """
    groups: dict[str, tuple[dict[str, Any], list[Folder]]] = {}
    for folder, own in zip(folders, distinguished(folders, given), strict=True):
        groups.setdefault(json.dumps(own, sort_keys=True), (own, []))[1].append(folder)
    every = [own for own, _ in groups.values()]
    differing = differing_keys(every)
    data_of = [(own["method.name"], own["data.name"]) for own in every]
    within = {
        group: differing_keys([own for own, other in zip(every, data_of, strict=True) if other == group])
        for group in set(data_of)
    }
    series = short_names(
        [
            (own["method.name"], picked(own, [key for key in within[group] if not of_panel(key)]))
            for own, group in zip(every, data_of, strict=True)
        ]
    )
    panels = short_names([(domain_of(own), picked(own, filter(of_panel, differing))) for own in every])
    return [
        as_run(members, own, differing, name, panel)
        for (own, members), name, panel in zip(groups.values(), series, panels, strict=True)
    ]


def distinguished(folders: Sequence[Folder], given: Sequence[Path]) -> list[dict[str, Any]]:
    """The folders' settings, with the key `folder` where a seed is there twice: for all runs of such a method the
    argument that they were found in, and where both are in the same, their own path."""

    def repeated(every: Sequence[dict[str, Any]]) -> list[bool]:
        keys = [json.dumps(own, sort_keys=True) for own in every]
        counts = Counter((key, seed.seed) for key, folder in zip(keys, folders, strict=True) for seed in folder.seeds)
        return [
            any(counts[key, seed.seed] > 1 for seed in folder.seeds) for key, folder in zip(keys, folders, strict=True)
        ]

    every = without_needless_digests([settings_of(folder) for folder in folders])
    twice = {own["method.name"] for own, again in zip(every, repeated(every), strict=True) if again}
    for own, origin in zip(every, given, strict=True):
        own |= {"folder": str(origin)} if own["method.name"] in twice else {}
    for own, folder, again in zip(every, folders, repeated(every), strict=True):
        own |= {"folder": str(folder.path)} if again else {}
    return every


def without_needless_digests(every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings with the digest of the samples only where runs with the same `CONTENT` have different ones: other
    pixels have another digest, and earlier runs have none."""
    found: dict[str, set[str]] = {}
    for own in every:
        found.setdefault(content_of(own), set()).update([own["data.digest"]] if "data.digest" in own else [])
    needless = {content for content, digests in found.items() if len(digests) < 2}
    return [
        {key: value for key, value in own.items() if key != "data.digest" or content_of(own) not in needless}
        for own in every
    ]


def content_of(own: Mapping[str, Any]) -> str:
    """What the settings say of the content of the samples."""
    return json.dumps([own.get(key) for key in CONTENT])


def of_panel(key: str) -> bool:
    """Whether runs that differ in a key are tested on different data."""
    return key.startswith("data.") and key not in TRAINING


def picked(own: Mapping[str, Any], keys: Iterable[str]) -> dict[str, str]:
    """Those of the keys that a run has, in words."""
    return {key: words(own[key]) for key in keys if key in own}


def domain_of(own: Mapping[str, Any]) -> str:
    """What a run is tested on; without an unseen domain, as of a deployment, its clients' own."""
    target, every = own["data.target"], own["data.protocol"] == "every_domain"
    return f"{target} unseen" if target else EVERY_DOMAIN if every else "the clients' own domains"


def settings_of(folder: Folder) -> dict[str, Any]:
    """The keys that distinguish experiments, `data.target` style, with the target by its name."""
    flat = flatten_dict(folder.config, sep=".")
    summary = next((seed.summary for seed in folder.seeds if seed.summary), {})
    described = folder.data.target if folder.data else ""
    flat["data.target"] = summary.get("target") or flat["data.target"] or described
    # Without the weights of another network it has always been this one.
    flat["data.scaling"] = flat.get("data.scaling") or ("" if flat.get("model.pretrained") else "signed")
    # Where the samples lie does not matter, but what they are.
    if folder.data and folder.data.content:
        flat["data.digest"] = folder.data.content
    return {key: value for key, value in flat.items() if key not in INCIDENTAL}


def differing_keys(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ; a hyperparameter of a method only among the runs of that method."""
    found = []
    for key in dict.fromkeys(key for one in every for key in one):
        groups: dict[str, set[str]] = {}
        for one in every:
            scope = one["method.name"] if key.startswith("method.") else ""
            if key in one or not key.startswith("method."):
                groups.setdefault(scope, set()).add(json.dumps(one.get(key)))
        if key not in ROWS and any(len(values) > 1 for values in groups.values()):
            found.append(key)
    return found


def as_run(folders: list[Folder], own: Mapping[str, Any], differing: Sequence[str], series: str, panel: str) -> Run:
    """One run of folders with the same settings.

    Args:
      folders: those with the same settings.
      own: these settings.
      differing: the keys that differ between all runs.
      series, panel: its names.
    """
    summary = next((seed.summary for folder in folders for seed in folder.seeds if seed.summary), {})
    facts = {key: value for key, value in summary.items() if key not in FIGURE_KEYS}
    return Run(
        method=own["method.name"],
        target=own["data.target"],
        series=series,
        panel=panel,
        settings=picked(own, differing),
        folders=folders,
        facts={"rounds": own["rounds"]} | facts,
    )


def words(value: Any) -> str:
    """A value of a config as displayed."""
    return "none" if value == "" else str(value)
