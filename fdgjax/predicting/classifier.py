"""A run's classifier: probabilities of the classes for images of bytes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.building import Experiment
from fdgjax.config import seeds_of
from fdgjax.contract import Variables
from fdgjax.data.pixels import as_floats
from fdgjax.engine import State, each_seed
from fdgjax.errors import UserError
from fdgjax.evaluation.metrics import Record
from fdgjax.methods import METHODS
from fdgjax.predicting.temperature import fit_temperature
from fdgjax.run.reopen import reopen

UNSEEN = -1
"""The number that stands for no client: the models for an unseen domain."""
IMAGES_AT_ONCE = 64


class Classifier(NamedTuple):
    """One or several models whose probabilities are averaged.

    experiment: the run's. models: variables, stacked `[models, ...]`, without those of a frozen trunk.
    client: whose model it is, or `UNSEEN`. round: number of rounds it was trained for. seed: the seed's number.
    records: of the rounds until then. temperature: what the logits are divided by.
    """

    experiment: Experiment
    models: Variables
    client: int
    round: int
    seed: int
    records: Sequence[Record]
    temperature: float = 1.0

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the probabilities."""
        return self.experiment.data.class_names

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(H, W, channels)` of an image."""
        return tuple(self.experiment.data.images.shape[1:])


def open_classifier(
    run: Path, *, client: int = UNSEEN, seed: int | None = None, data_dir: str = "", calibrated: bool = False
) -> Classifier:
    """The classifier in a run's newest checkpoint.

    Args:
      run: the run's folder.
      client: whose model, or `UNSEEN`.
      seed: of a run with several; None for the first.
      data_dir: folder of the data, if it has moved since the run.
      calibrated: whether to fit the temperature on the run's validation data.

    Raises:
      UserError: no run, no such client or seed, a method that learns without labels, or nothing to calibrate with.
    """
    experiment, stacked, history = reopen(run, data_dir)
    config = experiment.config
    if METHODS[config.method.name].unlabelled:
        raise UserError(
            f"{run} is a run of '{config.method.name}', which learns without labels and knows no classes; expected "
            "one of a method that classifies"
        )
    seeds = seeds_of(config)
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise UserError(f"--seed got {chosen}; expected one of the run's seeds, {seeds[0]} to {seeds[-1]}")
    place = seeds.index(chosen)
    state = each_seed(stacked, len(seeds))[place]
    models = models_of(experiment, state, client)
    found = Classifier(experiment, models, client, int(state.round), chosen, history.records[place])
    return found._replace(temperature=calibration(found, place)) if calibrated else found


def models_of(experiment: Experiment, state: State, client: int) -> Variables:
    """The variables that predict for a client or for an unseen domain, `[models, ...]`.

    Raises:
      UserError: no such client.
    """
    if client == UNSEEN:
        return jax.device_get(jax.jit(experiment.method.unseen)(state.server, state.clients))
    number = len(experiment.parts[0].train)
    if not 0 <= client < number:
        raise UserError(f"--client got {client}; expected a number from 0 to {number - 1}")
    row = 0 if experiment.method.pooled else client
    own = jax.jit(experiment.method.predict)(state.server, jax.tree.map(lambda leaf: leaf[row], state.clients))
    return jax.device_get(jax.tree.map(lambda leaf: leaf[None], own))


def probabilities_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The pure function of images, uint8 `[batch, H, W, channels]` -> probabilities float32 `[batch, classes]`."""
    logits = logits_of(classifier)

    def apply(images: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softmax(logits(images) / jnp.float32(classifier.temperature)), axis=0)

    return apply


def logits_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The function of images -> each model's logits, `[models, batch, classes]`."""
    whole, key = classifier.experiment.whole, jax.random.key(0)  # nothing is drawn in evaluation

    def apply(images: jax.Array) -> jax.Array:
        floats = as_floats(images)
        each = [
            whole.apply(jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), classifier.models), floats, False, key)[0]
            for i in range(len(jax.tree.leaves(classifier.models)[0]))
        ]
        return jnp.stack([output.logits.astype(jnp.float32) for output in each])

    return apply


def features_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The pure function of images -> features `[batch, m]` of the first model."""
    whole, key = classifier.experiment.whole, jax.random.key(0)

    def apply(images: jax.Array) -> jax.Array:
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), classifier.models)
        return whole.apply(first, as_floats(images), False, key)[0].features

    return apply


def in_batches(function: Callable[[jax.Array], jax.Array], images: np.ndarray, axis: int = 0) -> np.ndarray:
    """A function of images, some at a time, its results joined along their axis of images."""
    return in_compiled_batches(jax.jit(function), images, axis)


def in_compiled_batches(compiled: Callable[[jax.Array], jax.Array], images: np.ndarray, axis: int = 0) -> np.ndarray:
    """`in_batches` of a jitted function, which is compiled once for all its calls."""
    found = []
    for start in range(0, len(images), IMAGES_AT_ONCE):
        some = np.asarray(images[start : start + IMAGES_AT_ONCE])
        filled = np.pad(some, ((0, IMAGES_AT_ONCE - len(some)), (0, 0), (0, 0), (0, 0)))
        found.append(np.take(np.asarray(compiled(jnp.asarray(filled))), np.arange(len(some)), axis=axis))
    return np.concatenate(found, axis=axis)


def calibration(classifier: Classifier, place: int) -> float:
    """The temperature that fits the validation data: a client's own, or for an unseen domain those of all clients.

    Args:
      classifier: the one to calibrate.
      place: of its seed among the run's.

    Raises:
      UserError: the clients have no labels.
    """
    experiment = classifier.experiment
    if experiment.config.data.protocol == "labelled_server":
        raise UserError(
            "--calibrated needs labelled validation data, but in the protocol 'labelled_server' clients have no "
            "labels; leave it out"
        )
    held_out = experiment.parts[place].validation
    rows = np.concatenate(held_out) if classifier.client == UNSEEN else held_out[classifier.client]
    if not len(rows):
        raise UserError("--calibrated needs validation data, of which there are none; leave it out")
    logits = in_batches(logits_of(classifier), experiment.data.images[np.sort(rows)], axis=1)
    return fit_temperature(logits, experiment.data.labels[np.sort(rows)])
