"""Figures as files for papers: each panel with its legend, in real colours, without a title."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fdgjax.report.drawing import (
    COLOURS,
    INK,
    LIGHT,
    PAPER,
    REFERENCES,
    STYLE,
    Figure,
    Key,
    Panel,
    colour,
    dashes,
    file_of,
    fill,
    hatch,
    marker,
)
from fdgjax.report.escaping import for_figure
from fdgjax.report.spelling import spelled
from fdgjax.utils.errors import unknown
from fdgjax.utils.words import words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FORMATS = ("pdf", "svg", "png")
FOLDER = "figures"
"""The folder in a report's that holds the files."""
EMBEDDED: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "savefig.dpi": 200}
"""Fonts are embedded, as publishers require, or drawn."""
LONGEST_KEY = 60


def file_formats(words: str) -> tuple[str, ...]:
    """The formats in a list such as `pdf,svg`.

    Raises:
      UserError: another format.
    """
    found = tuple(dict.fromkeys(words_of(words)))
    for word in found:
        if word not in FORMATS:
            raise unknown("format of --figures", word, FORMATS)
    return found


def figure_files(figures: Mapping[str, Figure], formats: Sequence[str]) -> dict[str, bytes]:
    """The files of figures by their path in a report's folder: `figures/PANEL.pdf`.

    The drawings get their legends and colours here: they can be put into a page only before.
    """
    files: dict[str, bytes] = {}
    for figure in figures.values():
        for panel in figure.panels if formats else ():
            finish(panel, figure.legend)
            files |= {f"{FOLDER}/{panel.name}.{kind}": saved(panel.drawing, kind, panel.name) for kind in formats}
    return files


def finish(panel: Panel, legend: Sequence[Key]) -> None:
    """Adds the legend of what is in the panel below it, and replaces the placeholders of colours.

    The legend has as many columns as fit the width; a single one that is wider widens the drawing.
    """
    import matplotlib

    drawing = panel.drawing
    with matplotlib.rc_context(STYLE):
        handles = [handle(key) for key in (legend if panel.legend is None else panel.legend)]
        for columns in range(len(handles), 0, -1):
            added = drawing.legend(
                handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
            )
            width, height = (length / drawing.dpi for length in added.get_window_extent().size)
            if width <= drawing.get_figwidth() or columns == 1:
                drawing.set_size_inches(max(width, drawing.get_figwidth()), drawing.get_figheight() + height)
                break
            added.remove()
    recolour(drawing)


def handle(key: Key) -> Any:
    """What matplotlib's legend shows for a line of ours."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    name, ink = for_figure(spelled(key.name), LONGEST_KEY), colour(key.number)
    if key.kind == "fill":
        return Patch(facecolor=ink, hatch=hatch(key.number), edgecolor=PAPER, linewidth=0, label=name)
    if key.kind == "reference":
        return Line2D([], [], color=INK, linewidth=1, linestyle=(0, list(REFERENCES.values())[key.number]), label=name)
    if key.kind == "line":
        return Line2D([], [], color=ink, linestyle=dashes(key.number), label=name)
    if key.kind == "dot":
        look: Any = {"marker": "o", "fillstyle": fill(key.number)}
    else:
        look = {"marker": marker(key.number)}
    ink = INK if key.kind == "shape" else ink
    return Line2D([], [], color=ink, markersize=6, linestyle="none", label=name, **look)


def recolour(drawing: "Drawing") -> None:
    """Replaces the placeholders of `colour` by the colours of a light page."""
    import numpy as np
    from matplotlib.colors import to_rgba_array

    places = to_rgba_array([colour(i) for i in range(COLOURS)])[:, :3]
    light = to_rgba_array(LIGHT)[:, :3]
    for artist in drawing.findobj():
        for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            read, write = getattr(artist, f"get_{part}", None), getattr(artist, f"set_{part}", None)
            if read is None or write is None:
                continue
            try:
                now = to_rgba_array(read())
            except (TypeError, ValueError):  # `auto`, or data
                continue
            same = np.abs(now[:, None, :3] - places).max(axis=2) < 1e-6
            if same.any():
                now[:, :3] = np.where(same.any(axis=1)[:, None], light[same.argmax(axis=1)], now[:, :3])
                write(now[0] if len(now) == 1 else now)


def saved(drawing: "Drawing", kind: str, name: str) -> bytes:
    """A finished drawing as a file for papers; see `file_of`."""
    return file_of(drawing, kind, name, EMBEDDED)
