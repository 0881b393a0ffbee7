"""The gradients and the features of a trained run's domains, compared in pairs (FedGaLA, Theorem 1 and Figure 2)."""

import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Context, PyTree
from fdgjax.data.protocol_parts import domains_in_use
from fdgjax.evaluation.shift import (
    Minibatches,
    minibatch_gradient,
    mutual_information,
    pairs_of_a_class,
    tree_correlation,
    tree_covariance,
)
from fdgjax.inference.trained_run import TrainedRun
from fdgjax.utils.errors import UserError

SHIFT = "domain_shift.json"
"""The file in a run's folder with what `measure_pairs` found."""
PAIRS = 5000
"""Pairs of samples, for the mutual information of two domains' features."""


def measure_pairs(trained: TrainedRun, batches: int, repeats: int) -> dict[str, Any]:
    """Covariance of gradients and mutual information of features for each pair of domains, for `SHIFT`.

    Gradients are taken at the variables from which the first client starts its next round, features from the variables
    that predict for it. Samples are paired by class; labels are used for this figure only. Domains without a class in
    common are no pair.

    Args:
      trained: the run.
      batches: minibatches per gradient. repeats: gradients per domain.

    Raises:
      UserError: a method whose clients compute something before they train (`Method.prepare`), such as pseudo-labels.
    """
    experiment = trained.experiment
    if experiment.data.numeric:
        raise UserError("shift pairs samples by class, and this is a run of a regression; expected one that classifies")
    data, rng = experiment.data, np.random.default_rng(experiment.config.seed)
    excluded = experiment.facts.get("excluded", [])
    used = domains_in_use(data)
    rows = {name: np.flatnonzero(used == i) for i, name in enumerate(data.domain_names) if name not in excluded}
    gradients = gradients_of(trained, rows, (repeats, batches), rng)
    first = trained.client_variables(0)
    features = dict(zip(rows, trained.features([(first, own) for own in rows.values()]), strict=True))
    pairs = []
    for one, other in itertools.combinations(rows, 2):
        if not np.intersect1d(data.labels[rows[one]], data.labels[rows[other]]).size:
            continue
        left, right = pairs_of_a_class(rng, data.labels[rows[one]], data.labels[rows[other]], PAIRS)
        both = list(zip(gradients[one], gradients[other], strict=True))
        pairs.append(
            {
                "domains": [one, other],
                "covariance": [tree_covariance(a, b) for a, b in both],
                "correlation": [tree_correlation(a, b) for a, b in both],
                "mutual_information": mutual_information(features[one][left], features[other][right]),
            }
        )
    return {"round": trained.round, "target": experiment.facts["target"], "pairs": pairs}


def gradients_of(
    trained: TrainedRun, rows: Mapping[str, np.ndarray], counts: tuple[int, int], rng: np.random.Generator
) -> dict[str, list[PyTree]]:
    """Mean gradients of each domain; the n-th gradients of all domains share their random augmentation.

    Args:
      trained: the run.
      rows: positions of each domain's samples.
      counts: gradients per domain, and minibatches per gradient.
      rng: draws the minibatches.

    Raises:
      UserError: see `measure_pairs`.
    """
    experiment, state = trained.experiment, trained.state
    method, data = experiment.method, experiment.data
    if method.prepare is not None:
        raise UserError(
            f"method '{experiment.config.method.name}' prepares labels before it trains; expected a run of a method "
            "whose loss needs nothing but a batch, such as fedsimclr or fedavg"
        )
    client = trained.row(0)
    sent = method.send(state.server, client)
    received = method.start(sent, client)
    context = Context(sent, client, received, state.round)
    gradient = jax.jit(lambda samples, key: minibatch_gradient(method.objective, received, context, samples, key))
    found: dict[str, list[PyTree]] = {name: [] for name in rows}
    for repeat, name in itertools.product(range(counts[0]), rows):
        taken = rng.choice(rows[name], (counts[1], experiment.config.batch_size))
        stored = np.asarray(experiment.federation.inputs[jnp.asarray(taken, jnp.int32)])
        labels, domains = data.labels[taken].astype(np.int32), data.domains[taken].astype(np.int32)
        samples = Minibatches(stored, labels, domains, trained.federation.encoding)
        found[name].append(jax.device_get(gradient(samples, jax.random.key(repeat))))
    return found
