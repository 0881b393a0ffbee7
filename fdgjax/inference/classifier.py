"""A run's classifier: probabilities of the classes for uint8 images."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Variables
from fdgjax.data.pixels import as_floats
from fdgjax.experiments import Outline
from fdgjax.inference.temperature import fit_temperature
from fdgjax.inference.trained_run import TrainedModels, TrainedRun, open_models, open_trained
from fdgjax.utils.errors import UserError

UNSEEN = -1
"""Instead of a client's number: the models for an unseen domain."""
IMAGES_AT_ONCE = 64


class Classifier(NamedTuple):
    """One or several models of a trained run, whose probabilities are averaged.

    trained: the run. models: variables, stacked `[models, ...]`, without those of a frozen trunk.
    client: the client whose model it is, or `UNSEEN`. temperature: divides the logits.
    """

    trained: TrainedModels
    models: Variables
    client: int
    temperature: float = 1.0

    @property
    def outline(self) -> Outline:
        """The run's experiment without its data."""
        return self.trained.outline

    @property
    def whose(self) -> str:
        """Whose model it is, in words."""
        return "unseen domains" if self.client == UNSEEN else f"client {self.client}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the probabilities."""
        return self.outline.data.class_names

    @property
    def image_shape(self) -> tuple[int, ...]:
        """`(H, W, channels)` of an image."""
        return self.outline.data.image_shape


def open_classifier(
    run: Path,
    *,
    client: int = UNSEEN,
    seed: int | None = None,
    round_: str = "",
    data_dir: str = "",
    calibrated: bool = False,
) -> Classifier:
    """A run's classifier. The run's data are read only to calibrate it.

    Args:
      run: the run's folder.
      client: the client whose model it is, or `UNSEEN`.
      seed: one of the run's seeds; None for the first.
      round_: the round whose state it is, see `fdgjax.inference.kept_rounds.kept_state`; '' for the selected one.
      data_dir: folder of the data, if it has moved since the run.
      calibrated: whether to fit the temperature on the run's validation data.

    Raises:
      UserError: no run, no such client, seed or round, a method that learns without labels, or no labelled data to
        calibrate with.
    """
    if calibrated:
        whole = open_trained(run, data_dir, seed, round_)
        found = checked_classifier(whole, run, client)
        return found._replace(temperature=calibration(found, whole))
    return checked_classifier(open_models(run, data_dir, seed, round_), run, client)


def checked_classifier(trained: TrainedModels, run: Path, client: int) -> Classifier:
    """`classifier_of`; raises a `UserError` for a method without classes, or a client that the run lacks."""
    if not trained.classifies:
        raise UserError(
            f"{run} is a run of '{trained.outline.config.method.name}', which learns without labels and knows no "
            "classes; expected one of a method that classifies"
        )
    if client != UNSEEN and not 0 <= client < trained.clients:
        raise UserError(f"--client got {client}; expected a number from 0 to {trained.clients - 1}")
    return classifier_of(trained, client)


def classifier_of(trained: TrainedModels, client: int) -> Classifier:
    """The classifier of a client, or for an unseen domain."""
    if client == UNSEEN:
        return Classifier(trained, trained.unseen_variables(), client)
    own = trained.client_variables(client)
    return Classifier(trained, jax.tree.map(lambda leaf: leaf[None], own), client)


def probabilities_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The pure function of images, uint8 `[batch, H, W, channels]` -> probabilities float32 `[batch, classes]`."""
    logits = logits_of(classifier)

    def apply(images: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softmax(logits(images) / jnp.float32(classifier.temperature)), axis=0)

    return apply


def logits_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The function of images -> each model's logits, `[models, batch, classes]`."""
    whole, key = classifier.outline.whole, jax.random.key(0)  # evaluation draws no random numbers

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
    whole, key = classifier.outline.whole, jax.random.key(0)

    def apply(images: jax.Array) -> jax.Array:
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), classifier.models)
        return whole.apply(first, as_floats(images), False, key)[0].features

    return apply


def in_batches(function: Callable[[jax.Array], jax.Array], images: np.ndarray, axis: int = 0) -> np.ndarray:
    """A function applied to `IMAGES_AT_ONCE` images at a time, its results joined along `axis`."""
    return in_compiled_batches(jax.jit(function), images, axis)


def in_compiled_batches(compiled: Callable[[jax.Array], jax.Array], images: np.ndarray, axis: int = 0) -> np.ndarray:
    """`in_batches` of a jitted function, which is compiled at its first call."""
    found = []
    for start in range(0, len(images), IMAGES_AT_ONCE):
        some = np.asarray(images[start : start + IMAGES_AT_ONCE])
        filled = np.pad(some, ((0, IMAGES_AT_ONCE - len(some)), (0, 0), (0, 0), (0, 0)))
        found.append(np.take(np.asarray(compiled(jnp.asarray(filled))), np.arange(len(some)), axis=axis))
    return np.concatenate(found, axis=axis)


def calibration(classifier: Classifier, trained: TrainedRun) -> float:
    """The temperature fitted to the run's validation data: the client's own, or, for an unseen domain, all clients'.

    Raises:
      UserError: the clients have no labels.
    """
    experiment = trained.experiment
    if experiment.config.data.protocol == "labelled_server":
        raise UserError(
            "--calibrated needs labelled validation data, but in the protocol 'labelled_server' clients have no "
            "labels; leave it out"
        )
    held_out = trained.parts.validation
    rows = np.concatenate(held_out) if classifier.client == UNSEEN else held_out[classifier.client]
    if not len(rows):
        raise UserError("--calibrated needs validation data, of which there are none; leave it out")
    logits = in_batches(logits_of(classifier), experiment.data.images[np.sort(rows)], axis=1)
    return fit_temperature(logits, experiment.data.labels[np.sort(rows)])
