"""Figures drawn from the results of `fdgjax probe` and `fdgjax shift`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation.metrics import Record
from fdgjax.inference.domain_shift import SHIFT
from fdgjax.inference.probes import PROBES
from fdgjax.report.drawing import INK, Figure, OpenPanel, colour, panels_of, sheet
from fdgjax.report.escaping import for_figure
from fdgjax.report.figures import figure_of
from fdgjax.report.method_figures import Accuracies, by_percent, draw_probes
from fdgjax.report.reading import Run
from fdgjax.utils.checksums import read_checked_json


def left_by(run: Run, name: str) -> Record:
    """A command's results, from the first of the run's folders that has them; else empty."""
    files = [folder.path / name for folder in run.folders]
    found: Record = next((read_checked_json(file) for file in files if file.is_file()), {})
    return found


def probes_again(runs: Sequence[Run]) -> Figure | None:
    """Probe accuracy against the share of labels, a panel for each layer (FedGaLA, figure 3a)."""
    layers = dict.fromkeys(layer for run in runs for layer in left_by(run, PROBES))
    drawn = {layer: layer_panels(runs, layer, number) for number, layer in enumerate(layers)}
    panels = [
        panel._replace(title=f"{layer}, {panel.title}")
        for layer, figure in drawn.items()
        if figure
        for panel in figure.panels
    ]
    legend = dict.fromkeys(entry for figure in drawn.values() if figure for entry in figure.legend)
    return Figure(panels, list(legend)) if panels else None


def layer_panels(runs: Sequence[Run], layer: str, number: int) -> Figure | None:
    """The panels of one layer, the `number`th."""

    def curves(run: Run) -> Any:
        return left_by(run, PROBES).get(layer)

    def draw(axes: Any, found: list[Any], numbers: list[int]) -> None:
        def of(probes: Record, what: str) -> Accuracies:
            return by_percent([seed[what] for seed in probes["seeds"]])

        untrained = [of(found[0], what) for what in ("pixels", "random_encoder")]
        draw_probes(axes, [of(probes, "trained") for probes in found], numbers, untrained)

    return figure_of(runs, f"probes-{number}", curves, draw)


def domain_shift(runs: Sequence[Run]) -> Figure | None:
    """The covariance of two domains' gradients against the mutual information of their features, a panel for each run
    (FedGaLA, figure 2)."""
    panels: list[OpenPanel] = []
    for run in runs:
        if not (shift := left_by(run, SHIFT)):
            continue
        with sheet() as (drawing, axes):
            for pair in shift["pairs"]:
                x, each = pair["mutual_information"], np.asarray(pair["covariance"])
                seen = shift["target"] not in pair["domains"]
                axes.errorbar(
                    x,
                    each.mean(),
                    each.std(),
                    fmt="o",
                    markersize=6,
                    color=colour(0),
                    markerfacecolor=colour(0) if seen else "none",
                )
                name = ", ".join(pair["domains"])
                axes.annotate(
                    for_figure(name), (x, each.mean()), (4, 3), textcoords="offset points", fontsize=7, color=INK
                )
            axes.margins(x=0.2)
            axes.set_xlabel("mutual information of features (nats)")
            axes.set_ylabel("covariance of gradients")
            panels.append(OpenPanel(f"{run.label}, {run.panel}", "", f"shift-{len(panels)}", drawing, axes))
    return Figure(panels_of(panels, ""), []) if panels else None
