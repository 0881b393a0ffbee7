"""The figures of `config.figures` in a report: their tables, and curves of calibration by domain."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.evaluation.probability_figures import (
    CURVES,
    FIGURES,
    SCOPES,
    THRESHOLD,
    interval_key,
)
from fdgjax.evaluation.statistics import Spread, spread
from fdgjax.report.drawing import (
    Figure,
    OpenPanel,
    colour,
    dashes,
    panels_of,
    sheet,
)
from fdgjax.report.figures import diagonal, keys_of, series_of
from fdgjax.report.reading import Run, by_panel, names_in
from fdgjax.report.tables import SCOPE_TITLES, WHO, Cell, Column, Estimate, Table, who

LEAST = 5
"""A bin of a curve with fewer samples is noise and left out."""


def names_of(runs: Sequence[Run]) -> list[str]:
    """The figures that any of the runs has."""
    return [name for name in FIGURES if any(run.values(f"{scope}_{name}") for run in runs for scope in SCOPES)]


def figures_table(runs: Sequence[Run]) -> Table:
    """Each figure of each run: means over clients and models, pooled samples, the worst domain, the threshold."""
    scopes = {scope: title for scope, title in SCOPE_TITLES.items() if scope in SCOPES}
    rows: list[list[Cell]] = []
    for name in names_of(runs):
        for run in runs:
            cells = [spread(run.values(f"{scope}_{name}")) for scope in scopes]
            threshold = spread(run.values(THRESHOLD)) if FIGURES[name].thresholded else None
            rows += [[*who(run), FIGURES[name].title, *cells, threshold]] if any(cells) else []
    return Table(
        "figures",
        "Figures of probabilities",
        "Mean ± sample standard deviation over seeds, at the reported round. Of log loss and Brier score smaller "
        "values are better. The threshold is that of the clients' validation data. Empty: a class lacks samples.",
        [
            *WHO,
            Column("figure", "figure"),
            *(Column(scope, title, "decimals", 1) for scope, title in scopes.items()),
            Column("threshold", "threshold", "decimals"),
        ],
        rows,
        ("panel", "figure"),
    )


def figures_by_domain(runs: Sequence[Run]) -> Table:
    """Each figure on each domain, with the interval of a single seed on a small domain."""
    names = names_of(runs)
    domains = names_in(runs, *(f"per_domain_{name}" for name in names))
    rows: list[list[Cell]] = []
    for name in names:
        for run in runs:
            each, sure = run.values(f"per_domain_{name}"), run.values(interval_key(name))
            cells = [on_domain(each, sure, domain) for domain in domains]
            rows += [[*who(run), FIGURES[name].title, *cells]] if any(cells) else []
    return Table(
        "figures_by_domain",
        "Figures of probabilities on each domain",
        "Mean ± sample standard deviation over seeds; of one seed the 95 % interval over the samples of a domain "
        "where these are few (Wilson's of sensitivity and specificity, else by bootstrap). A source domain by the "
        "models of the clients that hold it, the unseen domain by all models.",
        [*WHO, Column("figure", "figure"), *(Column(domain, domain, "decimals", 1) for domain in domains)],
        rows,
        ("panel", "figure"),
    )


def on_domain(
    each: Sequence[Mapping[str, float]], sure: Sequence[Mapping[str, Sequence[float]]], domain: str
) -> Spread | Estimate | None:
    """A cell: mean and deviation of several seeds, the figure of one with its interval where there is one."""
    found = spread([one.get(domain) for one in each])
    interval = sure[0].get(domain) if len(sure) == 1 else None
    return Estimate(found.mean, *interval) if found and found.std is None and interval else found


def curve_of(run: Run, domain: str) -> tuple[np.ndarray, np.ndarray] | None:
    """A run's curve of calibration on a domain, over all seeds: mean probability and share of positive samples by bin;
    None without one."""
    found = [one[domain] for one in run.values(CURVES) if domain in one]
    if not found:
        return None
    count, positive, total = (
        np.sum([one[name] for one in found], axis=0) for name in ("count", "positive", "probability")
    )
    some = count >= LEAST
    return (total[some] / count[some], positive[some] / count[some]) if some.any() else None


def calibration_by_domain(runs: Sequence[Run]) -> Figure | None:
    """Curves of calibration, a panel for each domain, in a row for each of the runs' panels."""
    numbers, panels, drawn = series_of(runs), list[OpenPanel](), list[Run]()
    for title, mine in by_panel(runs).items():
        for domain in names_in(mine, CURVES):
            there = [(run, found) for run in mine if (found := curve_of(run, domain)) is not None]
            if not there:
                continue
            with sheet(3.4, 3.0) as (drawing, axes):
                diagonal(axes, "mean probability (%)", "share of samples (%)")
                for run, (x, y) in there:
                    look: Any = {"color": colour(numbers[run.series]), "linestyle": dashes(numbers[run.series])}
                    axes.plot(x, y, marker="o", **look)
                unseen = " (unseen)" if domain == there[0][0].target else ""
                name = f"calibration-{len(panels)}"
                legend = tuple(keys_of(runs, [run for run, _ in there]))
                panels.append(OpenPanel(f"{domain}{unseen}, {title}", title, name, drawing, axes, legend))
            drawn += [run for run, _ in there]
    return Figure(panels_of(panels, ""), keys_of(runs, drawn)) if panels else None
