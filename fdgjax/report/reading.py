"""Runs as reports show them: the seeds of one experiment joined, named by the settings in which experiments differ."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fdgjax.evaluation import figure_keys
from fdgjax.evaluation.metrics import Record
from fdgjax.evaluation.selection import ORACLE
from fdgjax.report.folders import Folder, Seed, read_run_folder, run_folders
from fdgjax.report.naming import short_names
from fdgjax.report.settings import differing_keys, distinguished, of_panel, picked
from fdgjax.report.trained_states import TrainedState

EVERY_DOMAIN = "every domain"
"""What a run is tested on that has no unseen one by its protocol."""


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


def by_panel(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each panel."""
    return {name: [run for run in runs if run.panel == name] for name in dict.fromkeys(run.panel for run in runs)}


def by_series(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each series."""
    return {name: [run for run in runs if run.series == name] for name in dict.fromkeys(run.series for run in runs)}


def names_in(runs: Sequence[Run], *figures: str) -> list[str]:
    """The names, such as domains, by which figures of the reported rounds have their values."""
    return list(dict.fromkeys(name for run in runs for key in figures for one in run.values(key) for name in one))


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


def domain_of(own: Mapping[str, Any]) -> str:
    """What a run is tested on; without an unseen domain, as of a deployment, its clients' own."""
    target, every = own["data.target"], own["data.protocol"] == "every_domain"
    return f"{target} unseen" if target else EVERY_DOMAIN if every else "the clients' own domains"


def as_run(folders: list[Folder], own: Mapping[str, Any], differing: Sequence[str], series: str, panel: str) -> Run:
    """One run of folders with the same settings.

    Args:
      folders: those with the same settings.
      own: these settings.
      differing: the keys that differ between all runs.
      series, panel: its names.
    """
    summary = next((seed.summary for folder in folders for seed in folder.seeds if seed.summary), {})
    facts = dict(summary)
    for figure in figure_keys():
        facts.pop(figure, None)
    return Run(
        method=own["method.name"],
        target=own["data.target"],
        series=series,
        panel=panel,
        settings=picked(own, differing),
        folders=folders,
        facts={"rounds": own["rounds"]} | facts,
    )
