"""What a run's trained state shows: embeddings, the divergence of the clients' models, and their features."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.building import Experiment
from fdgjax.config import seeds_of
from fdgjax.contract import Variables
from fdgjax.data.federation import TABLES, Federation, Rows
from fdgjax.engine import State, each_seed
from fdgjax.evaluation.features import features_of_rows
from fdgjax.run.reopen import reopen
from fdgjax.variables import flatten, module_of

MOST_SAMPLES = 900
"""The most samples, of all domains together, whose features are kept: t-SNE takes seconds for these, minutes for ten
times that number."""

MOST_CLIENTS = 20
"""The most clients whose models are read, the first ones; each model is held in memory."""


class Features(NamedTuple):
    """Features `[samples, m]` of held-out samples, each from the model that is evaluated on it, with their class and
    domain `[samples]` as indices into the names."""

    values: np.ndarray
    classes: np.ndarray
    domains: np.ndarray
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]


class Look(NamedTuple):
    """A trained state, of a run's first seed.

    facts: as in `summary.json`, of an unfinished run too.
    round: number of rounds it was trained for.
    embeddings: one for each client `[clients, e]`, of a method with a hypernetwork.
    divergence: for each layer, how far the clients' models are apart, see `divergence`; empty for a single model.
    features: None for a model without features.
    """

    facts: dict[str, Any]
    round: int
    embeddings: np.ndarray | None
    divergence: dict[str, float]
    features: Features | None


def look_at(path: Path, data_dir: str = "") -> Look:
    """The trained state in a run's newest checkpoint.

    Args:
      path: the run's folder.
      data_dir: folder of the data, if it has moved since the run.

    Raises:
      UserError: no checkpoint, or no data.
    """
    experiment, stacked, _ = reopen(path, data_dir)
    seeds = len(seeds_of(experiment.config))
    state: State = each_seed(stacked, seeds)[0]
    federation = experiment.federation if seeds == 1 else of_first_seed(experiment.federation)
    number = min(experiment.train.train.length.shape[-1], MOST_CLIENTS)
    clients = jax.tree.map(lambda leaf: leaf[:number], state.clients)
    own = jax.jit(jax.vmap(experiment.method.predict, in_axes=(None, 0), axis_size=number))(state.server, clients)
    apart = divergence(own) if number > 1 else {}
    if experiment.method.pooled:
        number = min(len(federation.validation.length), MOST_CLIENTS)
        own = jax.tree.map(lambda leaf: jnp.repeat(leaf, number, axis=0), own)
    unseen = jax.jit(experiment.method.unseen)(state.server, state.clients)
    return Look(
        facts=experiment.facts,
        round=int(state.round),
        embeddings=embeddings_of(state),
        divergence=apart,
        features=features_of(experiment, federation, own, unseen),
    )


def of_first_seed(federation: Federation) -> Federation:
    """The first seed's federation, of a federation of several seeds."""
    own: dict[str, Any] = {name: Rows(*(leaf[0] for leaf in getattr(federation, name))) for name in TABLES}
    return federation._replace(**own)


def embeddings_of(state: State) -> np.ndarray | None:
    """nu, `[clients, e]`, where the server keeps a hypernetwork."""
    nu = getattr(getattr(state.server, "weights", None), "nu", None)
    return None if nu is None else np.asarray(nu)


def divergence(variables: Variables) -> dict[str, float]:
    """How far models are apart, layer by layer: the mean over all pairs of `||w_i - w_j||`, divided by the mean of
    `||w_i||`, w being all parameters of a layer (hFedF v2, figure 5b, where it is not divided).

    Args:
      variables: of all models, `[models, ...]`.
    """
    layers: dict[str, list[jax.Array]] = {}
    for path, leaf in flatten(variables).items():
        if path.startswith("params/"):
            layers.setdefault(module_of(path), []).append(leaf)
    found = {}
    for layer, leaves in layers.items():
        weights = np.concatenate([np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1)
        left, right = np.triu_indices(len(weights), 1)
        apart = np.mean([np.linalg.norm(weights[i] - weights[j]) for i, j in zip(left, right, strict=True)])
        size = np.mean(np.linalg.norm(weights, axis=1))
        found[layer] = float(apart / size) if size else 0.0
    return found


def features_of(experiment: Experiment, federation: Federation, own: Variables, unseen: Variables) -> Features | None:
    """Features of the samples used for evaluation: each client's model on its own test, else validation samples, and
    the first model for the unseen domain on that domain; an equal share of `MOST_SAMPLES` for each."""
    data, config = experiment.data, experiment.config
    table = federation.test if np.asarray(federation.test.length).any() else federation.validation

    def pick(tree: Variables, i: int) -> Variables:
        return jax.tree.map(lambda leaf: leaf[i], tree)

    evaluated = [(pick(own, i), taken(table, i)) for i in range(min(len(table.length), MOST_CLIENTS))]
    evaluated += [(pick(unseen, 0), taken(federation.target, 0))]
    evaluated = [(variables, rows) for variables, rows in evaluated if len(rows)]
    share = MOST_SAMPLES // max(len(evaluated), 1)
    evaluated = [(variables, spread(rows, share)) for variables, rows in evaluated]
    features = features_of_rows(experiment.model, federation, evaluated, config.eval_batch_size)
    if not features or not features[0].shape[1]:
        return None
    places = np.concatenate([rows for _, rows in evaluated])
    return Features(
        np.concatenate(features),
        np.asarray(data.labels)[places],
        np.asarray(data.domains)[places],
        tuple(data.class_names),
        tuple(data.domain_names),
    )


def taken(rows: Rows, i: int) -> np.ndarray:
    """The positions in one row of a table."""
    return np.asarray(rows.places)[i, : int(np.asarray(rows.length)[i])]


def spread(rows: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the rows, at equal distances, so that all classes of a sorted row are among them."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
