"""Figures of domains and clients: bars, dots, fairness, radar."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation import short_names
from fdgjax.evaluation.figure_kinds import larger_is_better
from fdgjax.evaluation.statistics import by_point, spread
from fdgjax.report.drawing import (
    INK,
    REFERENCE,
    Figure,
    Key,
    OpenPanel,
    bars,
    colour,
    dashes,
    fill,
    marker,
    panels_of,
    sheet,
    tick_names,
)
from fdgjax.report.escaping import for_figure
from fdgjax.report.figures import figure_of, keys_of, percent_axis, series_of, side_by_side, table_of
from fdgjax.report.reading import Run, by_panel, by_series, names_in
from fdgjax.report.references import line_keys, lines_of
from fdgjax.report.tables import evenness

UNSEEN = " unseen"
"""What follows a domain in the name of a panel in which it is tested."""


def figure_axis(axes: Any, key: str) -> None:
    """Sets the y-axis to a figure of `short_names`: accuracies to percent, others as they are."""
    if key.endswith("_accuracy"):
        percent_axis(axes, f"{short_names()[key]} accuracy (%)")
    else:
        axes.set_ylabel(short_names()[key])


def bars_of(runs: Sequence[Run], figure: str, name: str, label: Callable[[Any], None]) -> Figure | None:
    """Bars of a figure on each domain and of the worst one's; the unseen domain is marked.

    Args:
      runs: all runs of the report.
      figure: the last part of its keys, as in `per_domain_accuracy`.
      name: of the panels.
      label: labels the axes.
    """
    worst = min if larger_is_better(figure) else max
    by_chance = ["ood_accuracy"] if figure == "accuracy" else []

    def curves(run: Run) -> Any:
        each = run.values(f"per_domain_{figure}")
        lines = [lines_of(run, runs, key) for key in by_chance]
        return (each, run.target, next((one.get("largest class alone") for one in lines), None)) if each else None

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        names = list(dict.fromkeys(name for each, *_ in found for one in each for name in one))
        heights = [
            np.concatenate([table_of(each, names), [[worst(one.values())] for one in each]], axis=1)
            for each, *_ in found
        ]
        _, target, majority = found[0]
        bars(axes, [*names, "worst domain"], heights, numbers, target)
        if majority is not None and target in names:
            place = names.index(target)
            axes.plot([place - 0.5, place + 0.5], [majority, majority], **REFERENCE)
        axes.axvline(len(names) - 0.5, color=INK, linewidth=0.6)
        label(axes)

    def keys(drawn: Sequence[Run]) -> list[Key]:
        lines = [key for key in line_keys(runs, by_chance, drawn) if key.name == "largest class alone"]
        return [*keys_of(runs, drawn, "fill"), *lines]

    return figure_of(runs, name, curves, draw, keys=keys)


def accuracy_by_domain(runs: Sequence[Run]) -> Figure | None:
    """Bars of each domain's accuracy and of the worst one's."""
    return bars_of(runs, "accuracy", "domains", lambda axes: percent_axis(axes, "accuracy (%)"))


def errors_by_domain(runs: Sequence[Run]) -> Figure | None:
    """Bars of each domain's root mean squared error and of the worst one's."""
    return bars_of(runs, "rmse", "errors", lambda axes: axes.set_ylabel("RMSE"))


def dots_of(runs: Sequence[Run], figure: str, name: str) -> Figure | None:
    """A dot for each unseen domain and seed; None for a single series.

    Args:
      runs: all runs of the report.
      figure: one of `short_names`.
      name: of the panel.
    """
    there = [run for run in runs if run.values(figure)]
    numbers, panels, drawn = series_of(runs), list(by_panel(there)), by_series(there)
    if len(drawn) < 2:
        return None
    with sheet(6.4, 3.4) as (drawing, axes):
        for place, (series, of_series) in enumerate(drawn.items()):
            mine = sorted((panels.index(run.panel), run.values(figure)) for run in of_series)
            shift = 0.7 * ((place + 0.5) / len(drawn) - 0.5)
            look: Any = {"color": colour(numbers[series]), "marker": marker(numbers[series])}
            for x, values in mine:
                axes.plot([x + shift] * len(values), values, linestyle="none", **look)
                mean = float(np.mean(values))
                axes.plot([x + shift - 0.05, x + shift + 0.05], [mean, mean], color=look["color"], linewidth=0.8)
        parts = [panel.partition(",") for panel in panels]
        unseen = all(first.endswith(UNSEEN) for first, *_ in parts)
        tick_names(axes, ["".join((first.removesuffix(UNSEEN), *rest)) for first, *rest in parts] if unseen else panels)
        axes.set_xlabel("unseen domain" if unseen else "")
        axes.set_xlim(-0.5, len(panels) - 0.5)
        figure_axis(axes, figure)
    opened = OpenPanel("every unseen domain", "", name, drawing, axes)
    return Figure(panels_of([opened]), keys_of(runs, there, "marker"))


def unseen_domains(runs: Sequence[Run]) -> Figure | None:
    """The accuracy on each unseen domain by each seed."""
    return dots_of(runs, "ood_accuracy", "unseen-domains")


def unseen_errors(runs: Sequence[Run]) -> Figure | None:
    """The root mean squared error on each unseen domain by each seed."""
    return dots_of(runs, "ood_rmse", "unseen-errors")


def fairness_figure(runs: Sequence[Run]) -> Figure | None:
    """The worst accuracy against the standard deviation, over domains and over clients."""
    numbers, shapes, panels, drawn = series_of(runs), list(by_panel(runs)), list[OpenPanel](), list[Run]()

    def keys(drawn: Sequence[Run]) -> list[Key]:
        of_panels = [Key(panel, shapes.index(panel), "shape") for panel in by_panel(drawn)]
        return [*keys_of(runs, drawn, "dot"), *(of_panels if len(shapes) > 1 else [])]

    for over in ("domain", "client"):
        there = [(run, evenness(run)) for run in runs if evenness(run)[f"{over}_min"]]
        if len(there) < 2:
            continue
        with sheet() as (drawing, axes):
            for run, found in there:
                ys, xs = (spread(found[f"{over}_{what}"]) for what in ("min", "std"))
                if ys and xs:
                    number = numbers[run.series]
                    look: Any = {"color": colour(number), "fillstyle": fill(number), "markersize": 7, "clip_on": False}
                    whiskers: Any = {"xerr": xs.std, "yerr": ys.std, "elinewidth": 0.7, "capsize": 1.5}
                    axes.errorbar(xs.mean, ys.mean, fmt=marker(shapes.index(run.panel)), **whiskers, **look)
            percent_axis(axes, f"deviation over {over}s (points)", "x")
            percent_axis(axes, f"worst {over} (%)")
            legend = tuple(keys([run for run, _ in there]))
            panels.append(OpenPanel(f"over {over}s", over, f"fairness-{over}", drawing, axes, legend))
        drawn += [run for run, _ in there]
    return Figure(panels_of(panels, "xy"), keys(drawn)) if panels else None


def radar(runs: Sequence[Run]) -> Figure | None:
    """Accuracy of each domain and of each client, every axis as a fraction of the best run's on it (FDSE, figure 3)."""
    numbers, panels, drawn = series_of(runs), list[OpenPanel](), list[Run]()
    for what, figure in (("domains", "per_domain_accuracy"), ("clients", "client_accuracy")):
        for title, mine in by_panel(runs).items():
            there = [run for run in mine if run.values(figure)]
            names = names_in(there, figure)
            # One or two axes enclose no area, more than 24 are illegible, and a single run is the best on every axis.
            if not 3 <= len(names) <= 24 or len(there) < 2:
                continue
            means = np.asarray([by_point(table_of(run.values(figure), names))[0] for run in there])
            scaled = means / np.maximum(np.nanmax(means, axis=0), 1e-9)
            angles = 2 * np.pi * np.arange(len(names)) / len(names)
            with sheet(3.6, 3.4, polar=True) as (drawing, axes):
                for run, values in zip(there, scaled, strict=True):
                    number = numbers[run.series]
                    closed = [np.append(each, each[0]) for each in (angles, values)]
                    axes.plot(*closed, color=colour(number), linestyle=dashes(number))
                    axes.fill(*closed, color=colour(number), alpha=0.07)
                unseen = {there[0].target: "\n(unseen)"}
                axes.set_xticks(angles, [for_figure(name, 18) + unseen.get(name, "") for name in names])
                # Long names stand beside the circle, not in it.
                for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
                    label.set_horizontalalignment(
                        ("right", "center", "left")[int(np.sign(np.round(np.cos(angle), 1))) + 1]
                    )
                axes.set_ylim(0, 1.02)
                axes.set_yticks([0.25, 0.5, 0.75, 1], [])
                axes.spines["polar"].set_alpha(0.3)
                legend, name = tuple(keys_of(runs, there)), f"radar-{what}-{len(panels)}"
                panels.append(OpenPanel(f"{what}, {title}", title, name, drawing, axes, legend))
            drawn += there
    return side_by_side(runs, [(panels, drawn)], "") if panels else None
