"""Figures of `config.figures` in a deployment: each node computes them of its own samples and sends the numbers alone.

They are a simulation's, but for what needs the probabilities of several parties' samples at once, and is left out: a
figure of all samples pooled (`id_all`, `all`), and of two classes those at a threshold, which is of all clients'
validation samples pooled unless `config.figures_threshold` gives it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fdgjax.data.groups import one_of_each
from fdgjax.deploy.leaves import Leaves
from fdgjax.deploy.terms import Terms
from fdgjax.evaluation.probabilities import Figuring, Judged, given_threshold, intervals_on
from fdgjax.evaluation.probability_figures import FIGURES, THRESHOLD, figure_of, interval_key, present
from fdgjax.utils.errors import UserError

PREFIX, INTERVAL = "figures/", "/interval"
"""What the paths of figures begin with, and what those of their intervals end with."""
TABLES = ("source", "test", "target")
"""The tables of which there are figures, by their names in `Tallies`."""


def figures_like(terms: Terms, tables: Mapping[str, int]) -> Leaves:
    """The figures in a reply, by path, none with a value; the tables' numbers of models by their names in `Tallies`.

    `figures/NAME/TABLE` is float64 `[models]`, NaN where a figure has no value; `figures/NAME/TABLE/interval` float64
    `[2]`, of the mean over models, NaN where it has none.
    """
    found = {}
    for name in terms.figures:
        for table in (table for table in TABLES if table in tables):
            found[path_of(name, table)] = np.full(tables[table], np.nan)
            found[path_of(name, table) + INTERVAL] = np.full(2, np.nan)
    return found


def path_of(name: str, table: str) -> str:
    """The path of a figure's values."""
    return f"{PREFIX}{name}/{table}"


def figure_leaves(terms: Terms, party: int, smallest: int, tables: Mapping[str, Sequence[Judged]]) -> Leaves:
    """A node's figures, as `figures_like` has them. One that needs a class of fewer samples, or groups, than the
    smallest number has no value: of one sample a sensitivity says whether it is recognised.

    Args:
      terms: name the figures. party: the node's number. smallest: see `fdgjax.deploy.evaluation.make_evaluate`.
      tables: of each table the samples as its models see them.
    """
    config, found = terms.config, figures_like(terms, {table: len(models) for table, models in tables.items()})
    threshold = threshold_of(terms)
    for table, models in tables.items():
        units = class_units(models[0], len(terms.class_names))
        names = tuple(name for name in terms.figures if FIGURES[name].defined(np.where(units < smallest, 0, units)))
        how = Figuring(names, resamples=config.figures_resamples)
        for name in names:
            values = [figure_of(FIGURES[name], one.labels, one.probabilities, threshold) for one in models]
            found[path_of(name, table)] = np.array([np.nan if value is None else value for value in values])
        for name, sure in intervals_on(how, threshold, models, config.seed, party).items():
            found[path_of(name, table) + INTERVAL] = np.array(sure)
    return found


def class_units(samples: Judged, classes: int) -> np.ndarray:
    """The number of samples of each class, or of groups that have any, `[classes]`."""
    each = (np.flatnonzero(samples.labels == label) for label in range(classes))
    return np.array([len(one_of_each(places, samples.groups)) for places in each])


def check_figures(arrays: Leaves, terms: Terms, tables: Mapping[str, int]) -> None:
    """Raises a `UserError` for figures that are not those of `figures_like`, or infinite."""
    like = figures_like(terms, tables)
    for path, value in arrays.items():
        if not path.startswith(PREFIX):
            continue
        wanted = like.get(path)
        fits = wanted is not None and wanted.shape == value.shape and value.dtype == wanted.dtype
        if not fits or np.isinf(value).any():
            raise UserError(
                f"its evaluation has '{path}', {value.dtype} {list(value.shape)}; expected finite figures of "
                f"{', '.join(tables)} by config.figures; install the server's version of fdgjax at the node"
            )


def figures_in(replies: Mapping[int, Leaves], terms: Terms, domain_names: Sequence[str]) -> dict[str, Any]:
    """The figures of a round by their keys in a record, from those that the parties sent.

    Args:
      replies: arrays by party. terms: of the federation. domain_names: of the parties.
    """
    found: dict[str, Any] = {}
    for name in terms.figures:
        source, test = (values_of(replies, terms.trained, name, table) for table in ("source", "test"))
        clients, table = (test, "test") if test else (source, "source")
        unseen = values_of(replies, [] if terms.unseen is None else [terms.unseen], name, "target")
        tables = {**dict.fromkeys(clients, table), **dict.fromkeys(unseen, "target")}
        per_domain = {domain_names[party]: value for party, value in sorted((clients | unseen).items())}
        values = {
            "id": mean_of(source.values()),
            "ood": mean_of(unseen.values()),
            "avg": mean_of(test.values()),
            "per_domain": per_domain,
            "worst_domain": (min if FIGURES[name].larger else max)(per_domain.values(), default=None),
            "client": {str(party): value for party, value in clients.items()},
        }
        found |= {f"{scope}_{name}": value for scope, value in values.items()}
        found[interval_key(name)] = present(
            {domain_names[party]: interval_of(replies[party], name, tables[party]) for party in sorted(tables)}
        )
    return present(found | {THRESHOLD: threshold_of(terms)}) if found else {}


def threshold_of(terms: Terms) -> float | None:
    """The threshold of two classes that the config gives; None without."""
    return given_threshold(terms.config.figures_threshold, len(terms.class_names))


def without_value(arrays: Leaves, terms: Terms) -> list[str]:
    """The figures that a party was asked for and sent no value of, though it sent others or counts."""
    sent = {
        name: [arrays[path] for table in TABLES if (path := path_of(name, table)) in arrays] for name in terms.figures
    }
    return [name for name, values in sent.items() if values and all(np.isnan(one).all() for one in values)]


def values_of(replies: Mapping[int, Leaves], parties: Iterable[int], name: str, table: str) -> dict[int, float]:
    """Each party's figure, the mean over its models, of those that sent one with a value."""
    each = {party: mean_of(replies.get(party, {}).get(path_of(name, table), [])) for party in parties}
    return {party: value for party, value in each.items() if value is not None}


def interval_of(arrays: Leaves, name: str, table: str) -> list[float] | None:
    """A party's interval of a figure; None where it has none."""
    ends = [float(end) for end in arrays.get(path_of(name, table) + INTERVAL, [np.nan])]
    return None if np.isnan(ends).any() else ends


def mean_of(values: Iterable[float]) -> float | None:
    """The mean of those that are not NaN; None for none."""
    there = [value for value in values if not np.isnan(value)]
    return float(np.mean(there)) if there else None
