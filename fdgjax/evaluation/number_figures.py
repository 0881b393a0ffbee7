"""Figures of predicted numbers: root mean squared error, R2 and mean absolute error, in the unit of the label.

With labels y, predictions p and the labels' mean m, all of the same n samples:

    rmse = sqrt(sum (p - y)^2 / n)    r2 = 1 - sum (p - y)^2 / sum (y - m)^2    mae = sum |p - y| / n

R2 compares with the best constant of these very samples: 1 is perfect, 0 as good as that constant, negative worse, as
on a domain with another mean. It has no value for samples with a single label.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdgjax.data.federation import Partition
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.sources.domains import Domains
from fdgjax.evaluation.error_sums import ErrorSums
from fdgjax.evaluation.probability_figures import finite, present
from fdgjax.utils.variables import PyTree


class Errors(NamedTuple):
    """Sums over samples, float64, in the label's unit: their number, squared and absolute errors, and the squared
    deviations of their labels from the labels' mean."""

    samples: int
    squared: float
    absolute: float
    spread: float


class NumberFigure(NamedTuple):
    """title: for tables. of: computes it of at least one sample; None where it has no value. larger: whether larger
    values are better."""

    title: str
    of: Callable[[Errors], float | None]
    larger: bool = False


NUMBER_FIGURES: Mapping[str, NumberFigure] = {
    "rmse": NumberFigure("RMSE", lambda one: float(np.sqrt(one.squared / one.samples))),
    "r2": NumberFigure("R2", lambda one: 1 - one.squared / one.spread if one.spread > 0 else None, larger=True),
    "mae": NumberFigure("MAE", lambda one: one.absolute / one.samples),
}
"""The figures by name."""
SCOPES = ("id", "id_all", "ood", "ood_adapted", "all", "avg", "per_domain", "worst_domain", "client")
"""Of what a figure is, as the figures of `fdgjax.evaluation.metrics.Metrics`: its key is `{scope}_{figure}`."""
NUMBER_RECORDED = tuple(f"{scope}_{name}" for name in NUMBER_FIGURES for scope in SCOPES)
"""All keys of records that they may have."""
SHORT: Mapping[str, str] = {"id": "id", "ood": "ood", "ood_adapted": "ood adapted", "all": "ALL", "avg": "AVG"}
NUMBER_HEADLINES: Mapping[str, str] = {
    f"{scope}_{name}": f"{short} {NUMBER_FIGURES[name].title}"
    for name in ("rmse", "r2")
    for scope, short in SHORT.items()
}
"""The main ones with short names, as `HEADLINES`."""


def errors_of(sums: ErrorSums, labels: np.ndarray, scale: LabelScale) -> Errors:
    """What figures are computed from.

    Args:
      sums: over the same samples, of standardised labels; its entries are added up.
      labels: `[samples]`, in the label's unit. scale: of the labels.
    """
    own, unit = labels.astype(np.float64), float(scale.deviation)
    squared, absolute = (float(np.sum(one, dtype=np.float64)) for one in (sums.squared, sums.absolute))
    spread = float(np.sum((own - own.mean()) ** 2)) if len(own) else 0.0
    return Errors(len(own), unit**2 * squared, unit * absolute, spread)


def measure_numbers(tallies: PyTree, data: Domains, part: Partition, scale: LabelScale) -> dict[str, Any]:
    """The figures of one evaluation by their keys in a record, without those that have no value or an infinite one.

    Args:
      tallies: `fdgjax.evaluation.tally.Tallies` of `ErrorSums`; those of clients in the order of `part`.
      data: its labels. part: the seed's split. scale: of its labels.
    """

    def each(sums: ErrorSums, rows: Sequence[np.ndarray]) -> list[Errors]:
        one = [ErrorSums(*(leaf[i] for leaf in sums)) for i in range(len(sums.squared))]
        return [errors_of(mine, data.labels[own], scale) for mine, own in zip(one, rows, strict=True)]

    def together(sums: ErrorSums, rows: Sequence[np.ndarray], domain: int | slice = slice(None)) -> Errors:
        own = np.concatenate(rows)
        own = own if isinstance(domain, slice) else own[data.domains[own] == domain]
        return errors_of(ErrorSums(*(leaf[:, domain] for leaf in sums)), data.labels[own], scale)

    def unseen(sums: ErrorSums) -> list[Errors]:
        return each(sums, [part.target] * len(sums.squared))

    source, test = each(tallies.source, part.validation), each(tallies.test, part.test)
    tested = any(map(len, part.test))
    shown, rows = (tallies.test, part.test) if tested else (tallies.source, part.validation)
    target = unseen(tallies.target)
    by_domain = {name: [together(shown, rows, i)] for i, name in enumerate(data.domain_names)}
    by_domain |= {data.domain_names[i]: target for i in np.unique(data.domains[part.target])}
    found: dict[str, Any] = {}
    for name, figure in NUMBER_FIGURES.items():
        per_domain = present({domain: mean_of(figure, own) for domain, own in by_domain.items()})
        scopes = {
            "id": mean_of(figure, source),
            "id_all": mean_of(figure, [together(tallies.source, part.validation)]),
            "ood": mean_of(figure, target),
            "ood_adapted": mean_of(figure, [] if tallies.adapted is None else unseen(tallies.adapted)),
            "all": mean_of(figure, [together(tallies.test, part.test)]),
            "avg": mean_of(figure, test),
            "per_domain": per_domain or None,
            # NumPy's, unlike Python's, are NaN where one is, wherever it stands.
            "worst_domain": float((np.min if figure.larger else np.max)([*per_domain.values()]))
            if per_domain
            else None,
            "client": present({str(i): mean_of(figure, [one]) for i, one in enumerate(test if tested else source)}),
        }
        found |= {f"{scope}_{name}": value for scope, value in present(scopes).items()}
    return finite(found)


def mean_of(figure: NumberFigure, each: Iterable[Errors]) -> float | None:
    """The mean of a figure over those that have a value; None where none has."""
    values = [value for one in each if one.samples and (value := figure.of(one)) is not None]
    return float(np.mean(values)) if values else None
