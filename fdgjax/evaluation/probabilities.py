"""The class probabilities of models on the samples by which they are evaluated, and the figures of these in records."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.contract import Execution, Method, Model, Variables
from fdgjax.data.federation import Federation, Partition, Rows
from fdgjax.data.groups import one_of_each
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.clients import over_clients, repeat_of
from fdgjax.engine.local import LocalData, samples_of
from fdgjax.engine.round import State
from fdgjax.evaluation.probability_figures import (
    CURVES,
    FIGURES,
    THRESHOLD,
    Figure,
    decision_threshold,
    figure_of,
    has_value,
    interval_key,
    present,
)
from fdgjax.evaluation.resampled import Resamples, of_each, percentile_interval, resamples_of, resamples_of_groups
from fdgjax.evaluation.statistics import wilson
from fdgjax.evaluation.tally import filled, on_held_out
from fdgjax.utils.random import Purpose

SMALL, MANY = 1000, 10_000
"""The most samples of a domain for which intervals are computed, or groups of samples: of more, an interval is narrower
than what differs between domains and seeds. And the most grouped samples: a figure's interval then takes a second."""
CURVE_BINS = 10
"""Bins of a curve of calibration, of equal width in [0, 1]."""


class Figuring(NamedTuple):
    """names: the entries of `FIGURES` to compute. sensitivity: that the threshold shall give, 0 for Youden's index.
    resamples: of an interval, 0 for no intervals. decides: whether clients have labels, by which a threshold is fixed.
    threshold: a given one; 0 for none.
    """

    names: tuple[str, ...]
    sensitivity: float = 0.0
    resamples: int = 1000
    decides: bool = True
    threshold: float = 0.0


class Probabilities(NamedTuple):
    """Logarithms of class probabilities, padded rows of samples: `source`, `test`: of each client's model on its own
    validation and test data, `[clients, longest, classes]`; `target`: of each model for the unseen domain on its test
    samples, `[models, longest, classes]`."""

    source: Any
    test: Any
    target: Any


Observing = Callable[[Method, State, Federation], Probabilities]


def probabilities_in(model: Model, *, batch_size: int, execution: Execution) -> Observing:
    """The function of a method, a state and a federation that gives the probabilities, to be part of a jitted program.

    Args:
      model: the network.
      batch_size: samples at a time.
      execution: how clients are run.
    """
    repeat = repeat_of(execution)

    def of_rows(variables: Variables, federation: Federation, rows: Rows) -> jax.Array:
        samples = samples_of(LocalData(federation, rows.places, rows.length), filled(batch_size, rows), repeat)
        found: jax.Array = samples.each(
            lambda batch: jax.nn.log_softmax(model.evaluate(variables, batch.inputs).logits)
        )
        return found

    def on_target(federation: Federation, variables: Variables) -> jax.Array:
        return of_rows(variables, federation, jax.tree.map(lambda leaf: leaf[0], federation.target))

    def observe(method: Method, state: State, federation: Federation) -> Probabilities:
        validation, test = on_held_out(of_rows, method, state, federation, execution)
        models = method.unseen(state.server, state.clients)
        return Probabilities(validation, test, over_clients(on_target, execution)(federation, models))

    return observe


class Judged(NamedTuple):
    """Samples as a model sees them: labels int `[n]`, domains int `[n]`, probabilities float64 `[n, classes]`, and
    groups int `[n]`, None for samples that are not grouped."""

    labels: np.ndarray
    domains: np.ndarray
    probabilities: np.ndarray
    groups: np.ndarray | None = None

    def at(self, places: np.ndarray) -> "Judged":
        """Some of the samples."""
        return Judged(*jax.tree.map(lambda leaf: leaf[places], self))


def judged(found: np.ndarray, rows: Sequence[np.ndarray], data: Domains) -> list[Judged]:
    """The samples of each model, from logarithms of probabilities `[models, longest, classes]` and the positions of its
    samples in the data."""
    each = []
    for logarithms, own in zip(found, rows, strict=True):
        p = np.exp(np.asarray(logarithms[: len(own)], np.float64))
        groups = None if data.groups is None else data.groups[own]
        each.append(Judged(data.labels[own], data.domains[own], p / p.sum(axis=1, keepdims=True), groups))
    return each


def pooled(models: Sequence[Judged]) -> Judged:
    """The samples of all models together."""
    return Judged(*jax.tree.map(lambda *leaves: np.concatenate(leaves), *models))


def measure_probabilities(
    how: Figuring, found: Probabilities, data: Domains, part: Partition, seed: int
) -> dict[str, Any]:
    """The figures by their keys in a record (`fdgjax.evaluation.probability_figures.recorded_keys`), those without a
    value left out.

    With two classes one threshold serves all figures of a round: a given one, or that of all clients' validation
    samples pooled, each with the probability that its client's own model gives it. No sample of the unseen domain has a
    part in it.

    Args:
      how: what to compute.
      found: the probabilities, on the host.
      data: holds labels and domains.
      part: the split, whose rows the probabilities are of.
      seed: of the resamples.
    """
    source, test = judged(found.source, part.validation, data), judged(found.test, part.test, data)
    target = judged(found.target, [part.target] * len(found.target), data)
    shown = test if any(len(one.labels) for one in test) else source
    domains = by_domain(shown, target, data.domain_names)
    threshold = given_threshold(how.threshold, len(data.class_names))
    if threshold is None and how.decides and len(data.class_names) == 2:
        threshold = decision_threshold(*pooled(source)[::2], how.sensitivity)
    record: dict[str, Any] = {
        THRESHOLD: threshold,
        CURVES: present({name: curve(pooled(of)) for name, of in domains.items()}),
    }
    for name in how.names:
        figure = FIGURES[name]
        of = partial(mean_over, figure, threshold)
        per_domain = present({domain: of(models) for domain, models in domains.items()})
        worst = min if figure.larger else max
        values = {
            "id": of(source),
            "id_all": of([pooled(source)]),
            "ood": of(target),
            "all": of([pooled(test)]),
            "avg": of(test),
            "per_domain": per_domain,
            "worst_domain": worst(per_domain.values(), default=None),
            "client": present({str(client): of([one]) for client, one in enumerate(shown)}),
        }
        record |= {f"{scope}_{name}": value for scope, value in values.items()}
    return present(record | intervals(how, threshold, domains, seed))


def given_threshold(threshold: float, classes: int) -> float | None:
    """The threshold of two classes that a config gives; None without."""
    return threshold if threshold and classes == 2 else None


def by_domain(shown: Sequence[Judged], target: Sequence[Judged], names: Sequence[str]) -> dict[str, list[Judged]]:
    """The samples of each domain that has any, by its name: of all clients pooled, or those of each model for the
    unseen domain."""
    every, found = pooled(shown), dict[str, list[Judged]]()
    for number, name in enumerate(names):
        unseen = [one for one in target if (one.domains == number).any()]
        own = every.at(every.domains == number)
        if unseen or len(own.labels):
            found[name] = unseen or [own]
    return found


def mean_over(figure: Figure, threshold: float | None, models: Sequence[Judged]) -> float | None:
    """A figure's mean over models, those left out for whose samples it has no value; None if it has none for any."""
    each = [figure_of(figure, one.labels, one.probabilities, threshold) for one in models]
    there = [value for value in each if value is not None]
    return float(np.mean(there)) if there else None


def intervals(
    how: Figuring, threshold: float | None, domains: Mapping[str, list[Judged]], seed: int
) -> dict[str, dict[str, list[float]]]:
    """By the key of each figure its interval on each domain of few samples, or groups; model, threshold and domain are
    as they are.

    Of a share of samples Wilson's, of others by bootstrap, with the same resamples for all figures of a domain and in
    each round; left out where almost all resamples have one value. Of grouped samples Wilson's interval has each group
    as one sample, and the bootstrap draws whole groups.
    """
    found: dict[str, dict[str, list[float]]] = {interval_key(name): {} for name in how.names}
    for number, (domain, models) in enumerate(domains.items()):
        for name, sure in intervals_on(how, threshold, models, seed, number).items():
            found[interval_key(name)][domain] = sure
    return found


def intervals_on(
    how: Figuring, threshold: float | None, models: Sequence[Judged], seed: int, number: int
) -> dict[str, list[float]]:
    """The interval of each figure on one domain, by the figure's name; see `intervals`.

    Args:
      how, threshold: as of `measure_probabilities`.
      models: the domain's samples, the same for each model.
      seed, number: of the resamples: the run's, and the domain's.
    """
    labels, groups = models[0].labels, models[0].groups
    units = len(one_of_each(np.arange(len(labels)), groups))
    if not how.resamples or units > SMALL or len(labels) > MANY:
        return {}
    random = np.random.default_rng([seed, Purpose.BOOTSTRAP, number])
    drawn: Resamples | None
    if groups is None:
        drawn = Resamples(resamples_of(labels, how.resamples, random))
    else:
        drawn = resamples_of_groups(labels, groups, how.resamples, random)
    each = {name: interval(FIGURES[name], threshold, models, drawn) for name in how.names}
    return {name: list(sure) for name, sure in each.items() if sure is not None}


def interval(
    figure: Figure, threshold: float | None, models: Sequence[Judged], drawn: Resamples | None
) -> tuple[float, float] | None:
    """The interval of a figure's mean over models on the same samples; None where it has none.

    Args:
      figure: an entry of `FIGURES`.
      threshold: as of `figure_of`.
      models: their samples.
      drawn: resamples of them; None for none.
    """
    there = [one for one in models if has_value(figure, one.labels, one.probabilities, threshold)]
    if not there:
        return None
    if figure.share_of is not None:
        share, of_class = mean_over(figure, threshold, there), np.flatnonzero(there[0].labels == figure.share_of)
        assert share is not None, "each of them has a value"
        units = len(one_of_each(of_class, there[0].groups))
        return wilson(round(share * units), units)
    if drawn is None:
        return None
    resampled = figure.resampled or of_each(figure.of)
    means = [
        np.mean([resampled(one.labels, one.probabilities, threshold, counts) for one in there], axis=0)
        for counts in drawn.parts()
    ]
    return percentile_interval(np.concatenate(means))


def figures_of_samples(
    labels: np.ndarray, probabilities: np.ndarray, threshold: float | None, groups: np.ndarray | None = None
) -> dict[str, dict[str, Any]]:
    """Every figure that has a value for one model's samples: its `value` and, of few samples, its `interval`, None
    of many and where there is none, see `intervals`.

    Args:
      labels: int `[n]`.
      probabilities: `[n, classes]`.
      threshold: of two classes; None for none.
      groups: int `[n]`, see `fdgjax.data.groups`; None for samples that are not grouped.
    """
    p = np.asarray(probabilities, np.float64)
    one = Judged(labels, np.zeros_like(labels), p / p.sum(axis=1, keepdims=True), groups)
    values = present({name: figure_of(FIGURES[name], one.labels, one.probabilities, threshold) for name in FIGURES})
    sure = intervals(Figuring(tuple(values)), threshold, {"": [one]}, seed=0)
    return {name: {"value": value, "interval": sure[interval_key(name)].get("")} for name, value in values.items()}


def curve(samples: Judged) -> dict[str, list[float]] | None:
    """A curve of calibration, a value for each of 10 bins of equal width in [0, 1]: of two classes the samples by the
    probability of the second (`count`), how many are of it (`positive`), and the sum of the probabilities
    (`probability`); of more classes the same of the largest probability, and of the samples whose class has it.

    None for probabilities that are not finite.
    """
    p = samples.probabilities
    if not np.isfinite(p).all():
        return None
    score, hit = (
        (p[:, 1], samples.labels == 1) if p.shape[1] == 2 else (p.max(axis=1), p.argmax(axis=1) == samples.labels)
    )
    place = np.searchsorted(np.linspace(0, 1, CURVE_BINS + 1)[1:-1], score)  # as scikit-learn's calibration_curve
    weights = {"count": np.ones(len(score)), "positive": hit, "probability": score}
    return {name: np.bincount(place, each, CURVE_BINS).tolist() for name, each in weights.items()}
