"""How a state is evaluated: by its predictions, or by linear probes where a method learns without labels.

Both make an `Evaluation`: one jitted program observes the states of all seeds; the figures are computed from its
results on the host.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Execution, Method, Model, PyTree
from fdgjax.data.encoding import Encoding, as_inputs
from fdgjax.data.federation import Federation, Partition
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import State, each_seed
from fdgjax.engine.batched_hyper import BatchedHyper
from fdgjax.evaluation.error_sums import error_sums
from fdgjax.evaluation.linear_probe import LAYERS, Probing, linear_probe, random_splits
from fdgjax.evaluation.metrics import Metrics, measure, measure_probe
from fdgjax.evaluation.number_figures import measure_numbers
from fdgjax.evaluation.probabilities import Figuring, measure_probabilities, probabilities_in
from fdgjax.evaluation.tally import EvaluationSettings, Shown, compile_evaluation, compile_representation


class Evaluation(NamedTuple):
    """How a state is evaluated.

    observe: `(state, federation) -> observed`, jitted or compiled, of all seeds.
    measure: `observed -> figures`, one `Metrics` for each seed.
    references: `observed, of the untrained state -> figures that training has to beat`, a dict for each seed; None
      where there are none.
    further: `observed -> figures of probabilities, or of numbers`, by their keys in a record, a dict for each seed;
      None where none are asked for.
    """

    observe: Callable[[State, Federation], PyTree]
    measure: Callable[[PyTree], list[Metrics]]
    references: Callable[[PyTree], list[dict[str, Any]]] | None = None
    further: Callable[[PyTree], list[dict[str, Any]]] | None = None


def evaluate(evaluation: Evaluation, state: State, federation: Federation) -> list[Metrics]:
    """Each seed's figures of a state."""
    return evaluation.measure(evaluation.observe(state, federation))


def reference_figures(evaluation: Evaluation, fresh: State, federation: Federation) -> list[dict[str, Any]] | None:
    """Each seed's figures that training has to beat, from the untrained state; None, without any computation, where
    there are none."""
    return evaluation.references(evaluation.observe(fresh, federation)) if evaluation.references else None


def of_predictions(
    method: Method | BatchedHyper,
    model: Model,
    data: Domains,
    how: EvaluationSettings,
    *,
    seeds: Sequence[int],
    attacked: Shown | None = None,
    figuring: Figuring | None = None,
    parts: Sequence[Partition] = (),
) -> Evaluation:
    """Accuracy, loss and calibration of a classifying method, see `Metrics`, and the figures that are asked for.

    Args:
      method, model, data: what is evaluated, and on which domains. how: see `EvaluationSettings`.
      seeds: those that are trained side by side.
      attacked: changes batches to what an attack wants to be predicted, and labels them so; None without one.
      figuring: which figures of probabilities are computed, too; None for none: then no probabilities are.
      parts: each seed's split, needed for these.
    """
    observe = compile_evaluation(
        method,
        model,
        how,
        domains=len(data.domain_names),
        attacked=attacked,
        further=probabilities_in(model, batch_size=how.batch_size, execution=how.execution) if figuring else None,
    )

    def figures(tallies: PyTree) -> list[Metrics]:
        return [measure(one, data.domain_names) for one in each_seed(jax.device_get(tallies), len(seeds))]

    def further(figuring: Figuring, tallies: PyTree) -> list[dict[str, Any]]:
        each = zip(each_seed(jax.device_get(tallies.further), len(seeds)), parts, seeds, strict=True)
        return [measure_probabilities(figuring, one, data, part, seed) for one, part, seed in each]

    return Evaluation(observe, figures, further=partial(further, figuring) if figuring else None)


def of_numbers(
    method: Method | BatchedHyper,
    model: Model,
    data: Domains,
    how: EvaluationSettings,
    *,
    parts: Sequence[Partition],
    label_scales: Sequence[LabelScale | None],
) -> Evaluation:
    """Errors of a method that predicts numbers, see `fdgjax.evaluation.number_figures`.

    Args:
      method, model, data, how: as for `of_predictions`.
      parts, label_scales: each seed's split, and how its labels are standardised.
    """
    observe = compile_evaluation(method, model, how, domains=len(data.domain_names), counting=error_sums)

    def measured(tallies: PyTree) -> list[dict[str, Any]]:
        each = zip(each_seed(jax.device_get(tallies), len(parts)), parts, label_scales, strict=True)
        return [measure_numbers(one, data, part, scale) for one, part, scale in each if scale is not None]

    return Evaluation(observe, lambda _: [Metrics() for _ in parts], further=measured)


def of_representations(
    method: Method | BatchedHyper,
    model: Model,
    data: Domains,
    *,
    probing: Probing,
    targets: Sequence[np.ndarray],
    encodings: Sequence[Encoding | None],
    seeds: Sequence[int],
    batch_size: int,
    execution: Execution,
) -> Evaluation:
    """Linear probes of a method that learns without labels, on the unseen domain.

    The references are the accuracies of probes on the untrained encoder (`random_encoder_probe`) and on its inputs,
    such as raw pixels (`pixel_probe`), by percentage of labels.

    Args:
      method, model, data: what is evaluated, and on which images and labels.
      probing: the settings of the probes.
      targets, encodings: for each seed the positions of the unseen domain's samples, and how they become inputs.
      seeds: of the splits, and of the probes' minibatches.
      batch_size: samples at a time, when their representations are computed.
      execution: how clients and seeds are run.
    """
    observe = compile_representation(method, model, LAYERS[probing.layer], batch_size=batch_size, execution=execution)
    probes = [partial(probe_rows, probing, data, seed, rows) for seed, rows in zip(seeds, targets, strict=True)]

    def figures(represented: PyTree) -> list[Metrics]:
        each = zip(probes, each_seed(jax.device_get(represented), len(seeds)), strict=True)
        return [measure_probe(probe(one)) for probe, one in each]

    def before(represented: PyTree) -> list[dict[str, Any]]:
        found = []
        for probe, rows, encoding, fresh in zip(probes, targets, encodings, figures(represented), strict=True):
            pixels = as_inputs(jnp.asarray(data.inputs[rows]), encoding).reshape(1, len(rows), -1)
            of_pixels = measure_probe(probe(pixels)).probe_by_percent
            found.append({"random_encoder_probe": fresh.probe_by_percent, "pixel_probe": of_pixels})
        return found

    return Evaluation(observe, figures, before)


def probe_rows(
    probing: Probing, data: Domains, seed: int, rows: np.ndarray, represented: jax.Array
) -> dict[int, np.ndarray]:
    """Accuracies of linear probes by their percentage of labels, `[models, repeats]` each.

    Args:
      probing: the settings of the probes.
      data: holds the labels, and the groups.
      seed: of the splits and of the probes' minibatches.
      rows: the samples.
      represented: each model's representation of them, `[models, longest, m]`.
    """
    labels, groups = data.labels[rows], None if data.groups is None else data.groups[rows]
    fit = partial(linear_probe, labels=jnp.asarray(labels, jnp.int32), classes=len(data.class_names), how=probing)
    keys, found = jax.random.split(jax.random.key(seed), probing.repeats), {}
    for percent in probing.percents:
        splits = random_splits(labels, percent, probing.repeats, seed, groups)
        fits = [
            partial(fit, own, train=jnp.asarray(split.train), test=jnp.asarray(split.test))
            for own, split in zip(keys.reshape(len(splits), -1), splits, strict=True)
        ]
        found[percent] = np.stack(
            [np.concatenate([np.asarray(fit(features=one[: len(rows)])) for fit in fits]) for one in represented]
        )
    return found
