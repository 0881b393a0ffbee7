"""A trained run's client models compared: how far they are from each other, and what they predict."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fdgjax.contract import Variables
from fdgjax.inference.trained_run import TrainedRun
from fdgjax.methods.parts.hypernetwork_method import HyperServer, with_mean_embedding
from fdgjax.utils.variables import flatten, module_of


def distance(weights: Sequence[np.ndarray]) -> float:
    """The mean over all pairs of `||w_i - w_j||`, divided by the mean of `||w_i||`; 0 for a single vector, and if all
    vectors are zero.

    Args:
      weights: each model's parameters, `[parameters]`.
    """
    pairs = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(weights, 2)]
    size = np.mean([np.linalg.norm(one) for one in weights])
    return float(np.mean(pairs) / size) if pairs and size else 0.0


def model_distance(models: Sequence[Variables]) -> float:
    """The `distance` of models over all their parameters together."""
    return distance([np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one["params"])]) for one in models])


def layer_distances(models: Sequence[Variables]) -> dict[str, float]:
    """The `distance` of models, layer by layer (hFedF v2, figure 5b, which does not divide by the norms)."""
    each = [flatten({"params": one["params"]}) for one in models]
    layers: dict[str, list[str]] = {}
    for path in each[0]:
        layers.setdefault(module_of(path), []).append(path)
    return {
        layer: distance([np.concatenate([np.ravel(one[path]).astype(np.float64) for path in paths]) for one in each])
        for layer, paths in layers.items()
    }


def compare(trained: TrainedRun) -> dict[str, Any]:
    """Distance, accuracies and predictions of the clients' models and of their means, for `apart.json`.

    `id` is the accuracy of a client's model on that client's held-out data, and for a mean model the average over all
    clients; `ood` is the accuracy on the unseen domain, beside the most predicted class there and its share of the
    predictions.
    """
    data, parts, facts = trained.experiment.data, trained.parts, trained.experiment.facts
    each = {f"client {client}": trained.client_variables(client) for client in range(trained.clients)}
    models = {**each, **means(trained, each)}
    held_out = {name: [rows] for name, rows in zip(each, parts.validation, strict=True)}
    asked = [
        (variables, rows)
        for name, variables in models.items()
        for rows in (*held_out.get(name, parts.validation), parts.target)
    ]
    answers = zip(trained.classes(asked), [data.labels[rows] for _, rows in asked], strict=True)

    def of_model(name: str) -> dict[str, Any]:
        own = [accuracy(*next(answers)) for _ in held_out.get(name, parts.validation)]
        return {"id": float(np.mean(own)), **predictions(*next(answers), data.class_names)}

    return {
        "round": trained.round,
        "distance": model_distance(list(each.values())),
        "target": facts["target"],
        "target_majority": facts.get("target_majority"),
        "models": {name: of_model(name) for name in models},
    }


def means(trained: TrainedRun, each: Mapping[str, Variables]) -> dict[str, Variables]:
    """The mean of the clients' models and, with a hypernetwork, the model of the mean embedding."""
    found = {"mean of the models": jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *each.values())}
    state = trained.state
    if isinstance(state.server, HyperServer):
        averaged = dataclasses.replace(trained, state=state._replace(server=with_mean_embedding(state.server)))
        found["mean embedding"] = averaged.client_variables(0)
    return found


def accuracy(predicted: np.ndarray, true: np.ndarray) -> float:
    """The share of right predictions."""
    return float(np.mean(predicted == true))


def predictions(predicted: np.ndarray, true: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy on the unseen domain and the most predicted class there; empty without an unseen domain."""
    if not len(true):
        return {}
    shares = np.bincount(predicted, minlength=len(names)) / len(predicted)
    most = int(np.argmax(shares))
    return {"ood": accuracy(predicted, true), "most_predicted": names[most], "share": float(shares[most])}
