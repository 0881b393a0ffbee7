"""What a run's trained state shows: embeddings, the divergence of the clients' models, and their features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.contract import Variables
from fdgjax.engine import State
from fdgjax.inference.client_models import layer_distances
from fdgjax.inference.trained_run import TrainedRun, open_trained, unstacked
from fdgjax.methods.parts.generated_models import HyperServer

MOST_SAMPLES = 900
"""The most samples, of all domains together, whose features are kept: t-SNE takes seconds for these, minutes for ten
times that number."""

MOST_CLIENTS = 20
"""The most clients whose models are read, the first ones; each model is held in memory."""


class Features(NamedTuple):
    """Features `[samples, m]` of held-out samples, each from the model that is evaluated on it, with their class and
    domain `[samples]` as indices into the names; numeric labels are of one class."""

    values: np.ndarray
    classes: np.ndarray
    domains: np.ndarray
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]


class TrainedState(NamedTuple):
    """A trained state, of a run's first seed.

    facts: as in `summary.json`, of an unfinished run too.
    round: number of rounds it was trained for.
    embeddings: one for each client `[clients, e]`, of a method with a hypernetwork.
    divergence: for each layer, how far the clients' models are apart, see `layer_distances`; empty for a single model.
    features: None for a model without features.
    """

    facts: dict[str, Any]
    round: int
    embeddings: np.ndarray | None
    divergence: dict[str, float]
    features: Features | None


def trained_state(path: Path, data_dir: str = "") -> TrainedState:
    """The trained state in a run's newest checkpoint.

    Args:
      path: the run's folder.
      data_dir: folder of the data, if it has moved since the run.

    Raises:
      UserError: no checkpoint, or no data.
    """
    trained = open_trained(path, data_dir)
    own = trained.first_client_variables(MOST_CLIENTS)
    pooled = trained.experiment.method.pooled
    return TrainedState(
        facts=trained.experiment.facts,
        round=trained.round,
        embeddings=embeddings_of(trained.state),
        divergence={} if pooled or len(own) < 2 else layer_distances(own),
        features=evaluation_features(trained, own),
    )


def embeddings_of(state: State) -> np.ndarray | None:
    """nu, `[clients, e]`, where the server keeps a hypernetwork."""
    return np.asarray(state.server.weights.nu) if isinstance(state.server, HyperServer) else None


def evaluation_features(trained: TrainedRun, own: Sequence[Variables]) -> Features | None:
    """Features of the samples used for evaluation: each client's model on its own test, else validation samples, and
    the first model for the unseen domain on that domain; an equal share of `MOST_SAMPLES` for each."""
    data, parts = trained.experiment.data, trained.parts
    held_out = parts.test if any(map(len, parts.test)) else parts.validation
    unseen, *_ = unstacked(trained.unseen_variables())
    models = [*zip(own, held_out, strict=False), (unseen, parts.target)]
    models = [(variables, rows) for variables, rows in models if len(rows)]
    share = MOST_SAMPLES // max(len(models), 1)
    evaluated = [(variables, evenly_spaced(rows, share)) for variables, rows in models]
    features = trained.features(evaluated)
    if not features or not features[0].shape[1]:
        return None
    places = np.concatenate([rows for _, rows in evaluated])
    return Features(
        np.concatenate(features),
        np.zeros(len(places), int) if data.numeric else np.asarray(data.labels)[places],
        np.asarray(data.domains)[places],
        tuple(data.class_names),
        tuple(data.domain_names),
    )


def evenly_spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the rows, at equal distances, so that all classes of a sorted row are among them."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
