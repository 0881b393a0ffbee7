"""The figures of a trained state: of predictions, or of linear probes where a method learns without labels."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.config import seeds_of
from fdgjax.engine import State, each_seed
from fdgjax.engine.local import as_floats
from fdgjax.evaluation import Metrics, measure, measure_probe
from fdgjax.evaluation.linear_probe import probe, stratified_split
from fdgjax.experiment import Experiment
from fdgjax.methods import METHODS


def evaluate(experiment: Experiment, state: State) -> list[Metrics]:
    """Each seed's figures of a state."""
    found = experiment.tally(state, experiment.federation)
    seeds = seeds_of(experiment.config)
    if METHODS[experiment.config.method].unlabelled:
        each = zip(seeds, experiment.parts, each_seed(found, len(seeds)), strict=True)
        return [measure_probe(probe_target(experiment, seed, parts.target, said)) for seed, parts, said in each]
    return [measure(one, experiment.data.domain_names) for one in each_seed(jax.device_get(found), len(seeds))]


def references(experiment: Experiment, state: State) -> list[dict[str, Any]]:
    """What a probe finds before any training, for each seed: in what the fresh encoder says (`random_encoder_probe`)
    and in the pixels themselves (`pixel_probe`), by percentage of labels; what learning without labels has to beat.
    Empty for a method that classifies."""
    seeds = seeds_of(experiment.config)
    if not METHODS[experiment.config.method].unlabelled:
        return [{} for _ in seeds]
    found = []
    for seed, parts, fresh in zip(seeds, experiment.parts, evaluate(experiment, state), strict=True):
        pixels = as_floats(jnp.asarray(experiment.data.images[parts.target])).reshape(1, len(parts.target), -1)
        of_pixels = measure_probe(probe_target(experiment, seed, parts.target, pixels))
        found.append({"random_encoder_probe": fresh.probe_by_percent, "pixel_probe": of_pixels.probe_by_percent})
    return found


def probe_target(experiment: Experiment, seed: int, rows: np.ndarray, said: jax.Array) -> dict[int, np.ndarray]:
    """Accuracies of linear probes on the unseen domain by their percentage of labels, `[models, repeats]` each.

    Args:
      experiment: says how.
      seed: of the splits and of the probes' minibatches.
      rows: the unseen domain's samples.
      said: what each model says of them, `[models, longest, m]`.
    """
    labels, how = experiment.data.labels[rows], experiment.config.probe
    found = {}
    for percent in how.percents:
        split = stratified_split(labels, percent, how.repeats, seed)
        of_model = partial(
            probe,
            jax.random.key(seed),
            labels=jnp.asarray(labels, jnp.int32),
            train=jnp.asarray(split.train),
            test=jnp.asarray(split.test),
            classes=len(experiment.data.class_names),
            how=how,
        )
        found[percent] = np.stack([np.asarray(of_model(features=one[: len(rows)])) for one in said])
    return found
