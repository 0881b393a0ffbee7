"""Figures drawn from records: accuracy by round and by bytes, domains, clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation import HEADLINES
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
    line,
    marker,
    panels_of,
    round_axis,
    sheet,
)
from fdgjax.report.escaping import for_figure
from fdgjax.report.reading import Run, marked_name
from fdgjax.report.references import draw_lines, line_keys, lines_of
from fdgjax.report.tables import curve, evenness, main_figure, recorded_bytes


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
    """The legend of the series that were drawn, in the order of all runs."""
    of = {name: [run for run in drawn if run.series == name] for name in series_of(drawn)}
    return [Key(marked_name(name, of[name]), n, kind) for name, n in series_of(runs).items() if name in of]


Draw = Callable[[Any, list[Any], list[int]], None]


def draw_panels(
    runs: Sequence[Run], name: str, curves: Callable[[Run], Any], draw: Draw, prefix: str = ""
) -> tuple[list[OpenPanel], list[Run]]:
    """A drawn panel for each of the runs' panels in which at least one run has curves, and the runs that were drawn;
    see `figure_of`. `prefix` begins the panels' titles."""
    numbers, panels, drawn = series_of(runs), list[OpenPanel](), list[Run]()
    for title, mine in by_panel(runs).items():
        there = [(run, found) for run in mine if (found := curves(run)) is not None]
        if there:
            with sheet() as (drawing, axes):
                draw(axes, [found for _, found in there], [numbers[run.series] for run, _ in there])
                panels.append(OpenPanel(f"{prefix}{title}", title, f"{name}-{len(panels)}", drawing, axes))
            drawn += [run for run, _ in there]
    return panels, drawn


def figure_of(
    runs: Sequence[Run], name: str, curves: Callable[[Run], Any], draw: Draw, same: str = "y"
) -> Figure | None:
    """A figure with a panel for each of the runs' panels in which at least one run has curves.

    Args:
      runs: all runs of the report.
      name: of the figure.
      curves: a run's curves, None for nothing.
      draw: `(axes, the curves of each run, the numbers of their colours)`.
      same: the axes that have the same range in all panels.
    """
    panels, drawn = draw_panels(runs, name, curves, draw)
    return Figure(panels_of(panels, same), keys_of(runs, drawn)) if panels else None


def side_by_side(
    runs: Sequence[Run], figures: Sequence[tuple[list[OpenPanel], list[Run]]], same: str = "xy"
) -> Figure | None:
    """One figure of several: panels of the same runs in a row, the axes `same` with one range for all."""
    order = list(by_panel(runs))
    panels = sorted((panel for some, _ in figures for panel in some), key=lambda panel: order.index(panel.row))
    drawn = [run for _, some in figures for run in some]
    return Figure(panels_of(panels, same), keys_of(runs, drawn)) if panels else None


def percent_axis(axes: Any, label: str, axis: str = "y") -> None:
    """Sets the y-axis, or with `"x"` the x-axis, to percent."""
    axes.set(**{f"{axis}label": label})
    getattr(axes, f"{axis}axis").set_major_formatter(lambda value, _: f"{100 * value:g}")


def accuracy_by_round(runs: Sequence[Run]) -> Figure | None:
    """Every headline figure against rounds, the panels of one target in a row, with reference lines (`lines_of`)."""

    def of(name: str, short: str) -> tuple[list[OpenPanel], list[Run]]:
        def curves(run: Run) -> Any:
            return (*curve(run, name), lines_of(run, runs, name)) if run.values(name) else None

        def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
            for (rounds, values, _), number in zip(found, numbers, strict=True):
                line(axes, rounds, values, number)
            draw_lines(axes, [lines for *_, lines in found], numbers)
            round_axis(axes)
            percent_axis(axes, f"{short} {name.rpartition('_')[2]} (%)")

        return draw_panels(runs, f"rounds-{name}", curves, draw, f"{short}, ")

    figure = side_by_side(runs, [of(name, short) for name, short in HEADLINES.items()])
    return figure and figure._replace(legend=[*figure.legend, *line_keys(runs, list(HEADLINES))])


def accuracy_by_bytes(runs: Sequence[Run]) -> Figure | None:
    """The main figure against the bytes that clients sent and received, with reference lines (`lines_of`)."""

    from matplotlib.ticker import LogLocator, NullFormatter

    def sends(run: Run) -> bool:
        return bool(main_figure(run) and sum(recorded_bytes(run) or (0,)))

    def curves(run: Run) -> Any:
        name = main_figure(run)
        if not sends(run):
            return None
        rounds, values = curve(run, name)
        megabytes = rounds * sum(recorded_bytes(run) or (0,)) / 1e6
        return HEADLINES[name], megabytes, values, lines_of(run, runs, name)

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        for (_, megabytes, values, _), number in zip(found, numbers, strict=True):
            line(axes, megabytes, values, number)
        draw_lines(axes, [lines for *_, lines in found], numbers)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("sent and received (MB)")
        percent_axis(axes, f"{' / '.join(dict.fromkeys(short for short, *_ in found))} accuracy (%)")

    figure = figure_of(runs, "bytes", curves, draw, "xy")
    shown = [run for run in runs if sends(run)]
    return figure and figure._replace(
        legend=[*figure.legend, *line_keys(runs, list(dict.fromkeys(map(main_figure, shown))), shown)]
    )


def table_of(each: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Accuracies `[seeds, names]`, NaN where missing."""
    return np.asarray([[one.get(name, np.nan) for name in names] for one in each], np.float64)


def accuracy_by_domain(runs: Sequence[Run]) -> Figure | None:
    """Bars of each domain's accuracy and of the worst one's; the unseen domain is marked."""

    def curves(run: Run) -> Any:
        each = run.values("per_domain_accuracy")
        return (each, run.target, lines_of(run, runs, "ood_accuracy").get("largest class alone")) if each else None

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        names = list(dict.fromkeys(name for each, *_ in found for one in each for name in one))
        worst = [np.asarray([[min(one.values())] for one in each]) for each, *_ in found]
        heights = [
            np.concatenate([table_of(each, names), low], axis=1) for (each, *_), low in zip(found, worst, strict=True)
        ]
        _, target, majority = found[0]
        bars(axes, [*names, "worst domain"], heights, numbers, target)
        if majority is not None and target in names:
            place = names.index(target)
            axes.plot([place - 0.5, place + 0.5], [majority, majority], **REFERENCE)
        axes.axvline(len(names) - 0.5, color=INK, linewidth=0.6)
        percent_axis(axes, "accuracy (%)")

    figure = figure_of(runs, "domains", curves, draw)
    fills = [key._replace(kind="fill") for key in figure.legend] if figure else []
    known = [key for key in line_keys(runs, ["ood_accuracy"]) if key.name == "largest class alone"]
    return figure and figure._replace(legend=[*fills, *known])


def unseen_domains(runs: Sequence[Run]) -> Figure | None:
    """A dot for each unseen domain and seed; None for a single series."""
    there = [run for run in runs if run.values("ood_accuracy")]
    numbers, panels = series_of(runs), list(by_panel(there))
    drawn = list(series_of(there))
    if len(drawn) < 2:
        return None
    with sheet(6.4, 3.4) as (drawing, axes):
        for place, name in enumerate(drawn):
            mine = sorted((panels.index(run.panel), run.values("ood_accuracy")) for run in there if run.series == name)
            shift = 0.7 * ((place + 0.5) / len(drawn) - 0.5)
            look: Any = {"color": colour(numbers[name]), "marker": marker(numbers[name])}
            for x, values in mine:
                axes.plot([x + shift] * len(values), values, linestyle="none", **look)
                mean = float(np.mean(values))
                axes.plot([x + shift - 0.05, x + shift + 0.05], [mean, mean], color=look["color"], linewidth=0.8)
        axes.set_xticks(range(len(panels)), [for_figure(name, 18) for name in panels])
        axes.set_xlim(-0.5, len(panels) - 0.5)
        axes.grid(visible=False, axis="x")
        percent_axis(axes, "ood accuracy (%)")
    opened = OpenPanel("every unseen domain", "", "unseen-domains", drawing, axes)
    return Figure(panels_of([opened]), keys_of(runs, there, "marker"))


def fairness_figure(runs: Sequence[Run]) -> Figure | None:
    """The worst accuracy against the standard deviation, over domains and over clients."""
    numbers, shapes, panels, drawn = series_of(runs), list(by_panel(runs)), list[OpenPanel](), list[Run]()
    for over in ("domain", "client"):
        there = [(run, evenness(run)) for run in runs if evenness(run)[f"{over}_min"]]
        if len(there) < 2:
            continue
        with sheet() as (drawing, axes):
            for run, found in there:
                ys, xs = (spread(found[f"{over}_{what}"]) for what in ("min", "std"))
                if ys and xs:
                    look: Any = {"color": colour(numbers[run.series]), "markersize": 7, "clip_on": False}
                    whiskers: Any = {"xerr": xs.std, "yerr": ys.std, "elinewidth": 0.7, "capsize": 1.5}
                    axes.errorbar(xs.mean, ys.mean, fmt=marker(shapes.index(run.panel)), **whiskers, **look)
            percent_axis(axes, f"deviation over {over}s (points)", "x")
            percent_axis(axes, f"worst {over} (%)")
            panels.append(OpenPanel(f"over {over}s", over, f"fairness-{over}", drawing, axes))
        drawn += [run for run, _ in there]
    keys = [Key(panel, shapes.index(panel), "shape") for panel in by_panel(drawn)]
    legend = keys_of(runs, drawn, "fill") + (keys if len(keys) > 1 else [])
    return Figure(panels_of(panels, "xy"), legend) if panels else None


def radar(runs: Sequence[Run]) -> Figure | None:
    """Accuracy of each domain and of each client, every axis as a fraction of the best run's on it (FDSE, figure 3)."""
    numbers, panels, drawn = series_of(runs), list[OpenPanel](), list[Run]()
    for what, figure in (("domains", "per_domain_accuracy"), ("clients", "client_accuracy")):
        for title, mine in by_panel(runs).items():
            there = [run for run in mine if run.values(figure)]
            names = list(dict.fromkeys(name for run in there for one in run.values(figure) for name in one))
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
                panels.append(OpenPanel(f"{what}, {title}", title, f"radar-{what}-{len(panels)}", drawing, axes))
            drawn += there
    return side_by_side(runs, [(panels, drawn)], "") if panels else None
