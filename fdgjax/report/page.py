"""The page: everything in one file, without scripts and external resources."""

import itertools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from fdgjax.report.drawing import COLOURS, DARK, LIGHT, REFERENCES, Figure, Key, Panel, fill, hatch, marker, pattern
from fdgjax.report.escaping import for_html
from fdgjax.report.folders import Folder
from fdgjax.report.formats import is_numeric_column, shown
from fdgjax.report.gallery import FIGURES, Exhibit
from fdgjax.report.reading import Run
from fdgjax.report.reproduction import command_of
from fdgjax.report.tables import Table


class Made(NamedTuple):
    """A folder as the page lists it: its path, run, seeds and finished rounds, the command that reproduces it, and the
    index of its versions in the page's list."""

    path: str
    run: str
    seeds: str
    rounds: str
    command: str
    versions: int


def make_page(
    runs: Sequence[Run], tables: Sequence[Table], figures: Mapping[str, Figure], command: str, notes: Sequence[str]
) -> str:
    """The page as HTML.

    Args:
      runs: those reported.
      tables, figures: to be shown.
      command: reproduces the page.
      notes: what was left out, and why.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, finalize=for_html, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(shown=shown, is_number=is_numeric_column, swatch=swatch, rows_of=rows_of, zip=zip)
    environment.globals.update(described=described)
    template = environment.from_string(resources.files("fdgjax.report").joinpath("page.html.j2").read_text())
    versions = list(dict.fromkeys(versions_of(folder) for run in runs for folder in run.folders))
    absent = [entry for name, entry in FIGURES.items() if name not in figures]
    closed = all(run.trained_state is None for run in runs)
    return template.render(
        title=title(runs),
        runs=runs,
        tables=tables,
        figures={name: (FIGURES[name], figure) for name, figure in figures.items()},
        light=LIGHT,
        dark=DARK,
        missing=[entry.title for entry in absent if not (entry.of_state and closed)],
        unopened=[entry.title for entry in absent if entry.of_state and closed],
        made=[made for run in runs for made in folders_of(run, versions)],
        unfinished=[f"{run.name} ({advance(run)})" for run in runs if run.unfinished],
        differing=sorted({key for run in runs for key in run.settings}),
        versions=[dict(one) for one in versions],
        command=command,
        notes=notes,
    )


def advance(run: Run) -> str:
    """The rounds that all seeds of a run have done, of those configured."""
    done = min(len(seed.records) for seed in run.seeds)
    rounds = run.folders[0].config["rounds"]
    return f"{done} of {rounds} rounds{'' if done < rounds else ', without a summary'}"


def title(runs: Sequence[Run]) -> str:
    """Methods, or their number, and data sets."""
    data = dict.fromkeys(str(run.folders[0].config["data"]["name"]) for run in runs)
    methods = dict.fromkeys(run.method for run in runs)
    named = ", ".join(methods) if len(methods) <= 4 else f"{len(methods)} methods"
    return f"{named} on {', '.join(data)}"


def versions_of(folder: Folder) -> tuple[tuple[str, str], ...]:
    """The names and versions of the programs that a folder's run began with, its commit among them if it is known."""
    return (*folder.versions.items(), *([("commit", folder.commit)] if folder.commit else []))


def folders_of(run: Run, versions: Sequence[tuple[tuple[str, str], ...]]) -> list[Made]:
    """The folders of a run."""
    return [
        Made(
            path=str(folder.path),
            run=f"{run.label}, {run.panel}",
            seeds=", ".join(str(seed.seed) for seed in folder.seeds),
            rounds=shown_progress(min(len(seed.records) for seed in folder.seeds), folder.config["rounds"]),
            command=command_of(folder),
            versions=versions.index(versions_of(folder)),
        )
        for folder in run.folders
    ]


def shown_progress(done: int, rounds: int) -> str:
    """Rounds done, and the configured number where the run is not finished."""
    return str(done) if done == rounds else f"{done} of {rounds}, unfinished"


def rows_of(figure: Figure) -> list[list[Panel]]:
    """A figure's panels, those that stand side by side together; one list of all where none do."""
    return [list(panels) for _, panels in itertools.groupby(figure.panels, lambda panel: panel.row)]


def described(entry: Exhibit, figure: Figure, panel: Panel) -> str:
    """A panel in words, for readers who do not see it: what it shows, and of which series."""
    legend = figure.legend if panel.legend is None else panel.legend
    of = f"; {', '.join(key.name for key in legend)}" if legend else ""
    return f"{entry.title}: {panel.title}{of}"


def swatch(key: Key) -> Mapping[str, Any]:
    """What the template needs to draw a legend's line: `colour`, `dashes`, the marker's `shape`, and what fills a dot
    and is drawn over a bar."""
    lengths = list(REFERENCES.values())[key.number] if key.kind == "reference" else pattern(key.number)
    return {
        "colour": "currentColor" if key.kind in ("shape", "reference") else f"var(--c{key.number % COLOURS})",
        "dashes": " ".join(f"{1.4 * length:g}" for length in lengths),
        "shape": SHAPES[marker(key.number)],
        "fill": FILLED[fill(key.number)],
        "hatch": HATCHED[hatch(key.number)],
    }


SHAPES: Mapping[str, str] = {
    "o": "M10 1.5a4.5 4.5 0 1 0 .01 0z",
    "s": "M6 2h8v8h-8z",
    "^": "M10 1l5 9.5h-10z",
    "D": "M10 .5l5.5 5.5-5.5 5.5-5.5-5.5z",
    "v": "M10 11l5-9.5h-10z",
    "<": "M4.5 6l9.5-5v10z",
    ">": "M15.5 6l-9.5-5v10z",
    "P": "M8.5 1h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
}
"""matplotlib's markers as paths, 20 wide and 12 high."""
FILLED: Mapping[str, str] = {
    "full": "M10 1.5a4.5 4.5 0 1 0 .01 0z",
    "none": "",
    "left": "M10 1.5a4.5 4.5 0 0 0 0 9z",
    "bottom": "M5.5 6a4.5 4.5 0 0 0 9 0z",
}
"""The filled part of a dot, as its shape."""
RISING = "M0 6l6-6M0 12l12-12M6 12l12-12M12 12l8-8M18 12l2-2"
HATCHED: Mapping[str, str] = {
    "": "",
    "-----": "M0 1.5h20M0 4.5h20M0 7.5h20M0 10.5h20",
    "/////": RISING,
    "xxxxx": f"{RISING}M20 6l-6-6M20 12l-12-12M14 12l-12-12M8 12l-8-8M2 12l-2-2",
}
"""matplotlib's hatchings, of a bar 20 wide and 12 high."""
