"""The figures of a report that are drawn from records: accuracy, domains, clients, aggregation, calibration."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation import HEADLINES
from fdgjax.report.drawing import (
    REFERENCE,
    Figure,
    Key,
    Panel,
    as_svg,
    bars,
    colour,
    dashes,
    line,
    marker,
    over_seeds,
    round_axis,
    sheet,
)
from fdgjax.report.escaping import for_figure
from fdgjax.report.reading import Run
from fdgjax.report.tables import bytes_per_round, curve, evenness, main_figure


def series_of(runs: Sequence[Run]) -> dict[str, int]:
    """The number, and so the colour, of every series, the same in all figures."""
    return {name: number for number, name in enumerate(dict.fromkeys(run.series for run in runs))}


def by_panel(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each panel."""
    panels: dict[str, list[Run]] = {}
    for run in runs:
        panels.setdefault(run.panel, []).append(run)
    return panels


def keys_of(runs: Sequence[Run], drawn: Sequence[Run], kind: str = "line") -> list[Key]:
    """The legend of the series that were drawn."""
    numbers = series_of(runs)
    return [Key(name, numbers[name], kind) for name in series_of(drawn)]


def figure_of(
    runs: Sequence[Run], name: str, curves: Callable[[Run], Any], draw: Callable[[Any, list[Any], list[int]], None]
) -> Figure | None:
    """A figure with a panel for each panel of the runs in which at least one run has curves.

    Args:
      runs: all runs of the report.
      name: of the figure.
      curves: a run's curves, None for nothing.
      draw: `(axes, the curves of each run, the numbers of their colours)`.
    """
    numbers, panels, drawn = series_of(runs), list[Panel](), list[Run]()
    for title, mine in by_panel(runs).items():
        there = [(run, found) for run in mine if (found := curves(run)) is not None]
        if there:
            with sheet() as (drawing, axes):
                draw(axes, [found for _, found in there], [numbers[run.series] for run, _ in there])
                panels.append(Panel(title, as_svg(drawing, f"{name}-{len(panels)}")))
            drawn += [run for run, _ in there]
    return Figure(panels, keys_of(runs, drawn)) if panels else None


def percent_axis(axes: Any, label: str) -> None:
    """Sets the y-axis to percent."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")


OF_TARGET = ("ood_accuracy", "ood_adapted_accuracy")
"""Headline figures that a model reaches on the unseen domain by predicting its largest class alone."""


def accuracy_by_round(runs: Sequence[Run]) -> Figure | None:
    """Every headline figure against rounds; on the unseen domain beside the share of its largest class (dotted)."""
    panels, drawn = [], []
    for name, short in HEADLINES.items():

        def curves(run: Run, name: str = name) -> Any:
            majority = run.facts.get("target_majority") if name in OF_TARGET else None
            return (*curve(run, name), majority) if run.values(name) else None

        def draw(axes: Any, found: list[Any], numbers: list[int], short: str = short) -> None:
            for (rounds, values, _), number in zip(found, numbers, strict=True):
                line(axes, rounds, values, number)
            for majority in {share for *_, share in found if share is not None}:
                axes.axhline(majority, **REFERENCE)
            round_axis(axes)
            percent_axis(axes, f"{short} accuracy (%)")

        figure = figure_of(runs, f"rounds-{name}", curves, draw)
        if figure:
            panels += [Panel(f"{short}, {panel.title}", panel.svg) for panel in figure.panels]
            drawn += [run for run in runs if run.values(name)]
    return Figure(panels, keys_of(runs, drawn)) if panels else None


def accuracy_by_bytes(runs: Sequence[Run]) -> Figure | None:
    """The main figure against the bytes that clients sent and received."""

    from matplotlib.ticker import LogLocator, NullFormatter

    def curves(run: Run) -> Any:
        name, traffic = main_figure(run), bytes_per_round(run)
        if not name or not traffic or not sum(traffic):
            return None
        rounds, values = curve(run, name)
        return HEADLINES[name], rounds * sum(traffic) / 1e6, values

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        for (_, megabytes, values), number in zip(found, numbers, strict=True):
            line(axes, megabytes, values, number)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("sent and received (MB)")
        percent_axis(axes, f"{' / '.join(dict.fromkeys(short for short, *_ in found))} accuracy (%)")

    return figure_of(runs, "bytes", curves, draw)


def table_of(each: Sequence[dict[str, float]], names: Sequence[str]) -> np.ndarray:
    """Accuracies `[seeds, names]`, NaN where there are none."""
    return np.asarray([[one.get(name, np.nan) for name in names] for one in each], np.float64)


def accuracy_by_domain(runs: Sequence[Run]) -> Figure | None:
    """Bars of each domain's accuracy and of the worst one's."""

    def curves(run: Run) -> Any:
        return run.values("per_domain_accuracy") or None

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        names = list(dict.fromkeys(name for each in found for one in each for name in one))
        worst = [np.asarray([[min(one.values())] for one in each]) for each in found]
        heights = [np.concatenate([table_of(each, names), low], axis=1) for each, low in zip(found, worst, strict=True)]
        bars(axes, [*names, "worst"], heights, numbers)
        axes.axvline(len(names) - 0.5, **REFERENCE)
        percent_axis(axes, "accuracy (%)")

    figure = figure_of(runs, "domains", curves, draw)
    return figure and figure._replace(legend=[key._replace(kind="fill") for key in figure.legend])


def fairness(runs: Sequence[Run]) -> Figure | None:
    """The worst accuracy against the standard deviation, over domains and over clients."""
    numbers, shapes, panels, drawn = series_of(runs), list(by_panel(runs)), list[Panel](), list[Run]()
    for over in ("domain", "client"):
        there = [(run, evenness(run)) for run in runs if evenness(run)[f"{over}_min"]]
        if len(there) < 2:
            continue
        with sheet() as (drawing, axes):
            for run, found in there:
                low, std = (float(np.mean(found[f"{over}_{what}"])) for what in ("min", "std"))
                axes.plot(std, low, marker(shapes.index(run.panel)), color=colour(numbers[run.series]), markersize=7)
            axes.set_xlabel(f"deviation over {over}s (points)")
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
            percent_axis(axes, f"worst {over} (%)")
            panels.append(Panel(f"over {over}s", as_svg(drawing, f"fairness-{over}")))
        drawn += [run for run, _ in there]
    keys = [Key(panel, shapes.index(panel), "shape") for panel in by_panel(drawn)]
    legend = keys_of(runs, drawn, "fill") + (keys if len(keys) > 1 else [])
    return Figure(panels, legend) if panels else None


def radar(runs: Sequence[Run]) -> Figure | None:
    """Accuracy of each domain and of each client, every axis as a fraction of the best run's on it (FDSE, figure 3)."""
    numbers, panels, drawn = series_of(runs), list[Panel](), list[Run]()
    for what, figure in (("domains", "per_domain_accuracy"), ("clients", "client_accuracy")):
        for title, mine in by_panel(runs).items():
            there = [run for run in mine if run.values(figure)]
            names = list(dict.fromkeys(name for run in there for one in run.values(figure) for name in one))
            # One or two axes enclose no area, more than 24 are illegible, and a single run is the best on every axis.
            if not 3 <= len(names) <= 24 or len(there) < 2:
                continue
            means = np.asarray([over_seeds(table_of(run.values(figure), names))[0] for run in there])
            scaled = means / np.maximum(np.nanmax(means, axis=0), 1e-9)
            angles = 2 * np.pi * np.arange(len(names)) / len(names)
            with sheet(3.6, 3.4, polar=True) as (drawing, axes):
                for run, values in zip(there, scaled, strict=True):
                    number = numbers[run.series]
                    closed = [np.append(each, each[0]) for each in (angles, values)]
                    axes.plot(*closed, color=colour(number), linestyle=dashes(number))
                    axes.fill(*closed, color=colour(number), alpha=0.07)
                axes.set_xticks(angles, [for_figure(name, 18) for name in names])
                # Long names stand beside the circle, not in it.
                for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
                    label.set_horizontalalignment(
                        ("right", "center", "left")[int(np.sign(np.round(np.cos(angle), 1))) + 1]
                    )
                axes.set_ylim(0, 1.02)
                axes.set_yticks([0.25, 0.5, 0.75, 1], [])
                axes.spines["polar"].set_alpha(0.3)
                panels.append(Panel(f"{what}, {title}", as_svg(drawing, f"radar-{what}-{len(panels)}")))
            drawn += there
    return Figure(panels, keys_of(runs, drawn)) if panels else None
