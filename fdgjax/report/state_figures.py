"""Figures drawn from trained states: embeddings, divergence of models, features."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdgjax.report.drawing import Figure, Key, OpenPanel, colour, dashes, marker, panels_of, sheet
from fdgjax.report.escaping import for_figure
from fdgjax.report.figures import figure_of
from fdgjax.report.reading import Run

NAMED = 24
"""With more classes or domains than this, the legend does not name them."""

ROUNDING = 1e-4
"""Models at most this far apart, relative to their norm, count as the same."""


def embeddings(runs: Sequence[Run]) -> Figure | None:
    """Each client's embedding: up to two dimensions as they are, more by their first two principal components (hFedF
    v2, figure 6a)."""
    panels: list[OpenPanel] = []
    for run in runs:
        nu = None if run.trained_state is None else run.trained_state.embeddings
        if nu is None:
            continue
        with sheet() as (drawing, axes):
            points, names = flat(nu)
            for client, (x, y) in enumerate(points):
                axes.plot(x, y, marker(client), color=colour(client), markersize=7)
                axes.annotate(str(client), (x, y), textcoords="offset points", xytext=(6, 4))
            axes.margins(0.12)
            axes.set_xlabel(names[0])
            axes.set_ylabel(names[1])
            if nu.shape[1] == 1:
                axes.set_yticks([])
            panels.append(OpenPanel(f"{run.label}, {run.panel}", "", f"embeddings-{len(panels)}", drawing, axes))
    return Figure(panels_of(panels, ""), []) if panels else None


def flat(points: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """`[points, 2]` from `[points, e]`, and the names of the two axes."""
    if points.shape[1] == 1:
        return np.concatenate([points, np.zeros_like(points)], axis=1), ("embedding", "")
    if points.shape[1] == 2:
        return points, ("embedding, first number", "second number")
    centred = points - points.mean(axis=0)
    # With a single point there is one component.
    left, sizes, _ = np.linalg.svd(np.concatenate([centred, np.zeros_like(centred[:1])]), full_matrices=False)
    left = left[:-1]
    share = sizes**2 / max(float(np.sum(sizes**2)), 1e-12)
    names = [f"component {i + 1} ({share[i]:.0%})" for i in range(2)]
    return left[:, :2] * sizes[:2], (names[0], names[1])


def divergence_figure(runs: Sequence[Run]) -> Figure | None:
    """How far the clients' models are apart, layer by layer (hFedF v2, figure 5b)."""

    def curves(run: Run) -> Any:
        found = {} if run.trained_state is None else run.trained_state.divergence
        # One model for all clients has no divergence but rounding.
        return found if max(found.values(), default=0) > ROUNDING else None

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        names = list(dict.fromkeys(name for layers in found for name in layers))
        shown = [for_figure(name, 40) for name in names]
        for layers, number in zip(found, numbers, strict=True):
            values = [layers.get(name, np.nan) for name in names]
            axes.plot(values, range(len(names)), color=colour(number), linestyle=dashes(number), marker="o")
        # At most 16 names fit the height.
        every = max(1, -(-len(names) // 16))
        axes.set_yticks(range(0, len(names), every), shown[::every])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("distance between models / their size")

    return figure_of(runs, "divergence", curves, draw, "x")


def features(runs: Sequence[Run]) -> Figure | None:
    """Features of held-out samples in two dimensions by t-SNE, coloured by class and by domain (FDSE, figure 4)."""
    panels: list[OpenPanel] = []
    legend: list[Key] = []
    for run in runs:
        found = None if run.trained_state is None else run.trained_state.features
        if found is None or len(found.values) < 10:
            continue
        points = t_sne(found.values)
        for what, numbers, names in (
            ("class", found.classes, found.class_names),
            ("domain", found.domains, found.domain_names),
        ):
            with sheet(4.2, 3.8) as (drawing, axes):
                for number in np.unique(numbers):
                    of = points[numbers == number]
                    axes.plot(*of.T, marker(number), color=colour(number), markersize=4, alpha=0.8, mew=0)
                axes.set_xticks([])
                axes.set_yticks([])
                axes.spines[:].set_visible(False)
                title, name = f"{run.label}, {run.panel}, by {what}", f"features-{len(panels)}"
                keys = [Key(f"{what} {name}", i, "marker") for i, name in enumerate(names)]
                own = tuple(keys) if len(names) <= NAMED else ()
                panels.append(OpenPanel(title, "", name, drawing, axes, own))
            legend += own
    return Figure(panels_of(panels, ""), list(dict.fromkeys(legend))) if panels else None


def t_sne(values: np.ndarray) -> np.ndarray:
    """`[samples, 2]`, t-SNE of the first 50 principal components of standardised features (van der Maaten & Hinton,
    2008)."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    scaled = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-6)
    components = min(50, *scaled.shape)
    reduced = PCA(components, random_state=0).fit_transform(scaled)
    perplexity = min(30, (len(values) - 1) / 3)
    found: np.ndarray = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(reduced)
    return found
