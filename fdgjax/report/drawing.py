"""The style of figures: panels of one size as SVG, whose colours the page's style sheet sets, light or dark."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fdgjax.evaluation.statistics import by_point
from fdgjax.report.escaping import for_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

INK = "#0a0b0c"
"""Text and axes; `currentColor` in the page."""

LIGHT = ("#0072b2", "#c74a00", "#00805c", "#a8408a", "#7d6400", "#5b45a0", "#56606b", "#99222f")
DARK = ("#5bb4ea", "#ff9b52", "#3fd0a4", "#e99ccc", "#e3cf4e", "#b5a5f2", "#b9c1ca", "#ff8d8d")
"""The colours of series on a light and on a dark page."""
COLOURS = len(LIGHT)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
MARKERS = "os^Dv<>P"
HATCHES = ("", "-----", "/////", "xxxxx")
FILLS = ("full", "none", "left", "bottom")
"""Of bars and of markers of any shape: with the colours, 32 series are distinct."""
PAPER = "#fefdfc"
"""The ground, `--page` in the page."""
REFERENCE: Any = {"color": INK, "linewidth": 1.0, "linestyle": (0, (1.5, 3))}
"""A line to compare with: dotted, in the colour of the text."""
REFERENCES: Mapping[str, tuple[float, ...]] = {
    "largest class alone": (1.5, 3),
    "central, as reported": (8, 3),
    "published": (5, 2, 1, 2, 1, 2),
}
"""Lines to compare with, by what they are, and their dashes."""

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are no mathematics
    "text.usetex": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.5,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "figure.constrained_layout.use": True,
}


class Key(NamedTuple):
    """A line of a legend: a name, the number of its colour, dashes, marker and so on, and its kind of swatch: `line`,
    `fill`, a bar, `marker`, `dot`, a marker of any shape, `shape`, a marker without a colour, or `reference`, one of
    `REFERENCES`."""

    name: str
    number: int
    kind: str = "line"


class Panel(NamedTuple):
    """A part of a figure: what it shows, the drawing as SVG, its name in the page, the drawing that the SVG was made
    of, and the legend of what is in it, None for that of the figure. Panels of one `row`, unless '', stand side by
    side."""

    title: str
    svg: str
    name: str
    drawing: Any
    row: str = ""
    legend: tuple[Key, ...] | None = None


class OpenPanel(NamedTuple):
    """A panel that can still be changed: its title and row, its name in the page, the drawing with its axes, and its
    legend as of `Panel`."""

    title: str
    row: str
    name: str
    drawing: "Drawing"
    axes: "Axes"
    legend: tuple[Key, ...] | None = None


class Figure(NamedTuple):
    """Panels side by side, as many in a line as fit, under one legend."""

    panels: list[Panel]
    legend: list[Key]


def colour(number: int) -> str:
    """One of `COLOURS` colours, in turn; a placeholder that `as_svg` replaces by the page's `--c0`, `--c1`, ..."""
    return f"#c0de{number % COLOURS:02x}"


def pattern(number: int) -> tuple[float, ...]:
    """Lengths of a line's dashes and gaps: with the colours, 32 lines are distinct, some even without colours."""
    return DASHES[(number + number // COLOURS) % len(DASHES)]


def dashes(number: int) -> Any:
    """The dashes of a line, in matplotlib's form."""
    return (0, pattern(number)) if pattern(number) else "solid"


def marker(number: int) -> str:
    """A marker: with the colours, 64 are distinct."""
    return MARKERS[(number + number // COLOURS) % len(MARKERS)]


def hatch(number: int) -> str:
    """The hatching of a bar, in matplotlib's form; see `HATCHES`."""
    return HATCHES[number // COLOURS % len(HATCHES)]


def fill(number: int) -> Any:
    """How a marker is filled, in matplotlib's form; see `FILLS`."""
    return FILLS[number // COLOURS % len(FILLS)]


def tick_names(axes: "Axes", names: Sequence[str], marked: str = "") -> None:
    """Names below the x-axis, tilted where they are too long to stand side by side; `(unseen)` below the marked one."""
    shown = list(map(for_figure, names))
    room = 10.5 * axes.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
    tilted: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    below = ["\n(unseen)" if name == marked else "" for name in names]
    crowded = max(map(len, shown), default=0) * len(shown) > room
    axes.set_xticks(
        range(len(names)), [one + more for one, more in zip(shown, below, strict=True)], **(tilted if crowded else {})
    )
    axes.grid(visible=False, axis="x")


def round_axis(axes: "Axes") -> None:
    """Sets the x-axis to rounds, with whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


@contextmanager
def sheet(width: float = 4.6, height: float = 3.0, polar: bool = False) -> Iterator[tuple["Drawing", "Axes"]]:
    """An empty drawing, in inches, with its axes."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    with matplotlib.rc_context(STYLE):
        drawing = Drawing(figsize=(width, height))
        yield drawing, drawing.add_subplot(projection="polar" if polar else None)


def panels_of(drawn: Sequence[OpenPanel], same: str = "y") -> list[Panel]:
    """Panels with one common range on each axis named in `same` (`x`, `y`), and in rows if any row has several."""
    for letter in same:
        limits = [getattr(one.axes, f"get_{letter}lim")() for one in drawn]
        for one in drawn:
            getattr(one.axes, f"set_{letter}lim")(min(map(min, limits)), max(map(max, limits)))
    in_rows = len({one.row for one in drawn}) < len(drawn)
    return [
        Panel(one.title, as_svg(one.drawing, one.name), one.name, one.drawing, one.row if in_rows else "", one.legend)
        for one in drawn
    ]


def as_svg(drawing: "Drawing", name: str) -> str:
    """A drawing as SVG for inclusion in a page: no fixed size, unique ids, colours by style sheet.

    Args:
      drawing: drawn with `INK` and `colour`.
      name: unique in the page; letters, digits and hyphens.
    """
    text = file_of(drawing, "svg", name).decode()
    text = re.sub(r"<(metadata|style).*?</\1>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"<svg[^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1>", text, count=1, flags=re.DOTALL)
    # In tags alone, in none of which a name is: what is drawn may look like an id or a colour.
    return re.sub(r"<[^<>]*>", lambda tag: tag_of_page(tag[0], name), text)


def file_of(drawing: "Drawing", kind: str, name: str, style: Any = MappingProxyType({})) -> bytes:
    """A drawing as a file; the same at every call, without the date, ids in it by the `name`."""
    import matplotlib

    file = io.BytesIO()
    dates: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    with matplotlib.rc_context({**STYLE, **style, "svg.hashsalt": name}), warnings.catch_warnings():
        # Text is drawn by the reader's browser, which may well have the characters.
        warnings.filterwarnings("ignore", message="Glyph")
        drawing.savefig(file, format=kind, metadata=dates[kind])
    return file.getvalue()


def tag_of_page(tag: str, name: str) -> str:
    """A tag of a drawing's SVG, with ids that begin with `name` and the page's colours and fonts."""
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r'(href="|url\()#', rf"\1#{name}-", tag)
    tag = tag.replace(INK, "currentColor").replace(PAPER, "var(--page)")
    tag = re.sub(r"#c0de([0-9a-f]{2})", lambda found: f"var(--c{int(found[1], 16)})", tag)
    return re.sub(r"font(-family)?: ([^;\"]*?)'[^;\"]*", r"font\1: \2sans-serif", tag)


def line(axes: "Axes", x: np.ndarray, values: np.ndarray, number: int) -> None:
    """The mean over seeds as a line, and a band of one sample standard deviation with edges.

    Args:
      axes: to draw on.
      x: `[points]`.
      values: `[seeds, points]`, NaN where a seed has none.
      number: of colour and dashes.
    """
    mean, std = by_point(values)
    markers = "o" if len(x) <= 12 else None
    axes.plot(x, mean, color=colour(number), linestyle=dashes(number), marker=markers)
    if np.isfinite(std).any():
        # The edges, in the line's own dashes, show a band that lies under another one.
        axes.fill_between(x, mean - std, mean + std, color=colour(number), alpha=0.14, linewidth=0)
        for edge in (mean - std, mean + std):
            axes.plot(x, edge, color=colour(number), linestyle=dashes(number), linewidth=0.6, alpha=0.7)


def bars(
    axes: "Axes", names: Sequence[str], heights: Sequence[np.ndarray], numbers: Sequence[int], marked: str = ""
) -> None:
    """Groups of bars: for each name one bar of each series, the mean over seeds with a whisker of one deviation.

    Args:
      axes: to draw on.
      names: of the groups.
      heights: of each series `[seeds, names]`, NaN where missing.
      numbers: the series' colours.
      marked: the unseen domain; its group is labelled as such and shaded.
    """
    if marked in names:
        place = list(names).index(marked)
        axes.axvspan(place - 0.5, place + 0.5, color=INK, alpha=0.07, linewidth=0)
    width = 0.8 / max(len(heights), 1)
    for i, (values, number) in enumerate(zip(heights, numbers, strict=True)):
        mean, std = by_point(values)
        x = np.arange(len(names)) + (i - (len(heights) - 1) / 2) * width
        look: Any = {"color": colour(number), "hatch": hatch(number), "edgecolor": PAPER, "linewidth": 0}
        axes.bar(x, np.nan_to_num(mean), width * 0.9, **look)
        shown = np.isfinite(std)
        axes.errorbar(x[shown], mean[shown], std[shown], fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    tick_names(axes, names, marked)
