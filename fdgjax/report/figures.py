"""What figures of runs have in common, and those drawn from records against rounds and bytes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fdgjax.evaluation import HEADLINES, short_names
from fdgjax.report.drawing import (
    REFERENCE,
    Figure,
    Key,
    OpenPanel,
    line,
    panels_of,
    round_axis,
    sheet,
)
from fdgjax.report.reading import Run, by_panel, by_series, marked_name
from fdgjax.report.references import draw_lines, line_keys, lines_of
from fdgjax.report.tables import curve, main_figure, recorded_bytes


def series_of(runs: Sequence[Run]) -> dict[str, int]:
    """The number, and so the colour, of every series, the same in all figures."""
    return {name: number for number, name in enumerate(by_series(runs))}


def keys_of(runs: Sequence[Run], drawn: Sequence[Run], kind: str = "line") -> list[Key]:
    """The legend of the series that were drawn, in the order of all runs."""
    of = by_series(drawn)
    return [Key(marked_name(name, of[name]), n, kind) for name, n in series_of(runs).items() if name in of]


Draw = Callable[[Any, list[Any], list[int]], None]
Keys = Callable[[Sequence[Run]], list[Key]]


def draw_panels(
    runs: Sequence[Run],
    name: str,
    curves: Callable[[Run], Any],
    draw: Draw,
    prefix: str = "",
    keys: Keys | None = None,
) -> tuple[list[OpenPanel], list[Run]]:
    """A drawn panel for each of the runs' panels in which at least one run has curves, and the runs that were drawn;
    see `figure_of`. `prefix` begins the panels' titles."""
    keys = keys or partial(keys_of, runs)
    numbers, panels, drawn = series_of(runs), list[OpenPanel](), list[Run]()
    for title, mine in by_panel(runs).items():
        there = [(run, found) for run in mine if (found := curves(run)) is not None]
        if there:
            with sheet() as (drawing, axes):
                draw(axes, [found for _, found in there], [numbers[run.series] for run, _ in there])
                legend = tuple(keys([run for run, _ in there]))
                panels.append(OpenPanel(f"{prefix}{title}", title, f"{name}-{len(panels)}", drawing, axes, legend))
            drawn += [run for run, _ in there]
    return panels, drawn


def figure_of(
    runs: Sequence[Run],
    name: str,
    curves: Callable[[Run], Any],
    draw: Draw,
    same: str = "y",
    keys: Keys | None = None,
) -> Figure | None:
    """A figure with a panel for each of the runs' panels in which at least one run has curves.

    Args:
      runs: all runs of the report.
      name: of the figure.
      curves: a run's curves, None for nothing.
      draw: `(axes, the curves of each run, the numbers of their colours)`.
      same: the axes that have the same range in all panels.
      keys: the legend of the runs that were drawn; by default `keys_of` them.
    """
    panels, drawn = draw_panels(runs, name, curves, draw, keys=keys)
    return Figure(panels_of(panels, same), (keys or partial(keys_of, runs))(drawn)) if panels else None


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


def diagonal(axes: Any, x: str, y: str) -> None:
    """Sets both axes, by their labels, to percent from 0 to 100, with a line where the two are the same."""
    axes.plot([0, 1], [0, 1], **REFERENCE)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    percent_axis(axes, x, "x")
    percent_axis(axes, y)


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

        def keys(drawn: Sequence[Run]) -> list[Key]:
            return [*keys_of(runs, drawn), *line_keys(runs, [name], drawn)]

        return draw_panels(runs, f"rounds-{name}", curves, draw, f"{short}, ", keys)

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

    def keys(drawn: Sequence[Run]) -> list[Key]:
        return [*keys_of(runs, drawn), *line_keys(runs, list(dict.fromkeys(map(main_figure, drawn))), drawn)]

    return figure_of(runs, "bytes", curves, draw, "xy", keys)


def curves_by_round(runs: Sequence[Run], keys: Sequence[str]) -> Figure | None:
    """Figures, of `short_names`, against rounds, the panels of one target in a row."""

    def of(key: str) -> tuple[list[OpenPanel], list[Run]]:
        def curves(run: Run) -> Any:
            return curve(run, key) if run.values(key) else None

        def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
            for (rounds, values), number in zip(found, numbers, strict=True):
                line(axes, rounds, values, number)
            round_axis(axes)
            axes.set_ylabel(short_names()[key])

        return draw_panels(runs, f"rounds-{key}", curves, draw, f"{short_names()[key]}, ")

    return side_by_side(runs, [of(key) for key in keys], "x")


def table_of(each: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    """Accuracies `[seeds, names]`, NaN where missing."""
    return np.asarray([[one.get(name, np.nan) for name in names] for one in each], np.float64)
