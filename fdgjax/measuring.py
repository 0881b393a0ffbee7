"""The figures of a trained state: of predictions, or of linear probes where a method learns without labels."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.config import seeds_of
from fdgjax.engine import State, each_seed
from fdgjax.evaluation import Metrics, measure, measure_probe
from fdgjax.evaluation.probe import probe, stratified_split
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
