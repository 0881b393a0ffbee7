"""A run's classifier: probabilities of the classes for stored samples, uint8 images or float32 arrays; or of a
regression, the predicted numbers."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import Output, PyTree, Variables
from fdgjax.data.encoding import Encoding, as_inputs
from fdgjax.data.numeric_labels import LabelScale
from fdgjax.evaluation.feature_distance import distances_in
from fdgjax.experiments import Outline
from fdgjax.inference.safeguards import Safeguards, features_in, kept_safeguards, safeguards_of
from fdgjax.inference.temperature import fit_temperature, probabilities_at
from fdgjax.inference.trained_run import TrainedModels, TrainedRun, open_models, open_trained, unstacked
from fdgjax.utils.errors import UserError, printable

LOGGER = logging.getLogger(__name__)

UNSEEN = -1
"""Instead of a client's number: the models for an unseen domain."""
SAMPLES_AT_ONCE = 64


class Classifier(NamedTuple):
    """One or several models of a trained run, whose probabilities, or predicted numbers, are averaged.

    trained: the run. models: variables, stacked `[models, ...]`, without those of a frozen trunk.
    client: the client whose model it is, or `UNSEEN`. temperature: divides the logits; fitted_to: the number of samples
      that it was fitted to. safeguards: what its predictions are compared with; None for nothing.
    """

    trained: TrainedModels
    models: Variables
    client: int
    temperature: float = 1.0
    fitted_to: int = 0
    safeguards: Safeguards | None = None

    @property
    def outline(self) -> Outline:
        """The run's experiment without its data."""
        return self.trained.outline

    @property
    def whose(self) -> str:
        """Whose model it is, in words."""
        return "unseen domains" if self.client == UNSEEN else f"client {self.client}"

    @property
    def calibrated(self) -> bool:
        """Whether the temperature was fitted."""
        return self.temperature != 1

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the probabilities."""
        return self.outline.data.class_names

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample as it is stored, `(H, W, channels)` of an image."""
        return self.outline.data.sample_shape

    @property
    def images(self) -> bool:
        """Whether samples are images."""
        return self.outline.data.images

    @property
    def label_scale(self) -> LabelScale | None:
        """How the numbers that it predicts were standardised; None for classes."""
        data = self.outline.data
        return data.label_scales[self.trained.index] if data.numeric else None

    @property
    def encoding(self) -> Encoding | None:
        """How stored values become the model's inputs."""
        return self.outline.data.encodings[self.trained.index]


class Chosen(NamedTuple):
    """Which of a run's models.

    client: whose it is, by its number or name; '' for the unseen domain's. seed: one of the run's; None for the first.
    round_: the round whose state it is, see `fdgjax.inference.kept_rounds.kept_state`; '' for the selected one.
    data_dir: folder of the data, if it has moved since the run.
    calibrated: whether to divide the logits by a temperature fitted on the run's validation data.
    guarded: whether it must have safeguards; if the run keeps none for it, they are measured on the data.
    """

    client: str = ""
    seed: int | None = None
    round_: str = ""
    data_dir: str = ""
    calibrated: bool = False
    guarded: bool = False


BY_DEFAULT = Chosen()


def open_classifier(run: Path, chosen: Chosen = BY_DEFAULT) -> Classifier:
    """The classifier of the run in a folder, with the safeguards that the run keeps for it. The run's data are read
    only for a temperature or for safeguards that it does not keep.

    Raises:
      UserError: no run, no such client, seed or round, a method that learns without labels, or no labelled data to
        calibrate with, or a regression, of which nothing is calibrated.
    """
    calibrated, guarded = chosen.calibrated, chosen.guarded
    where = (chosen.data_dir, chosen.seed, chosen.round_)
    models = open_models(run, *where)
    if models.outline.data.numeric and (calibrated or guarded):
        raise UserError(
            f"{run} is a run of a regression, which predicts numbers without probabilities; expected no "
            f"{'--calibrated' if calibrated else 'sets of classes or distances'}"
        )
    found = checked_classifier(models, run, chosen.client)
    client = found.client
    kept = kept_safeguards(models, run) if client == UNSEEN else None
    if kept is None and (calibrated or guarded):
        whole = open_trained(run, *where)
        if guarded:
            kept = safeguards_of(whole, found.models, None if client == UNSEEN else client)
        elif calibrated:
            return with_temperature(found, *calibration(found, whole))
    found = found._replace(safeguards=kept)
    return with_temperature(found, kept.temperature, len(kept.distances)) if kept and calibrated else found


def with_temperature(classifier: Classifier, temperature: float, samples: int) -> Classifier:
    """The classifier with a temperature fitted to some samples; logs it if they gave none."""
    if temperature == 1:
        LOGGER.warning(
            f"no temperature can be fitted to {samples:,} held-out samples of the clients, as all are right or a "
            "temperature far from 1 would be best: the probabilities stay as they are; calibrate on more samples"
        )
    return classifier._replace(temperature=temperature, fitted_to=samples)


def checked_classifier(trained: TrainedModels, run: Path, client: str) -> Classifier:
    """`classifier_of` a client by its number or name, or for an unseen domain, ''; raises a `UserError` for a method
    without labels, or a client that the run lacks."""
    if not trained.learns_labels:
        raise UserError(
            f"{run} is a run of '{trained.outline.config.method.name}', which learns without labels and knows no "
            "classes; expected one of a method that classifies"
        )
    return classifier_of(trained, client_number(trained, client, "--client") if client else UNSEEN)


def client_number(trained: TrainedModels, client: int | str, key: str) -> int:
    """The number of a client, given by its name or by its number; raises a `UserError` if the run has none such. key:
    how it is given, in words."""
    names, word = trained.outline.data.client_names, str(client)
    if word in names:
        return names.index(word)
    if not word.isdecimal() or int(word) >= trained.clients:
        named = f", or one of {', '.join(names)}" if names else ""
        raise UserError(printable(f"{key} got {word}; expected a number from 0 to {trained.clients - 1}{named}"))
    return int(word)


def classifier_of(trained: TrainedModels, client: int) -> Classifier:
    """The classifier of a client, or for an unseen domain."""
    if client == UNSEEN:
        return Classifier(trained, trained.unseen_variables(), client)
    own = trained.client_variables(client)
    return Classifier(trained, jax.tree.map(lambda leaf: leaf[None], own), client)


class Predicted(NamedTuple):
    """probabilities: float32 `[batch, classes]`; of a regression the predicted numbers instead, `[batch, 1]`, in the
    label's unit. distances: from the training images, float32 `[batch]`, see
    `fdgjax.evaluation.feature_distance`; None without safeguards."""

    probabilities: jax.Array
    distances: jax.Array | None


def predicted_by(classifier: Classifier) -> Callable[[jax.Array], Predicted]:
    """The pure function of stored samples `[batch, ...]` -> what is predicted for them."""
    outputs, guards, scale = outputs_of(classifier), classifier.safeguards, classifier.label_scale

    def apply(images: jax.Array) -> Predicted:
        each = outputs(images)
        logits = stacked_logits(each)
        if scale is not None:
            return Predicted(scale.in_units(jnp.mean(logits, axis=0)), None)
        distances = None if guards is None else distances_in(guards.space, features_in(each[0]))
        return Predicted(probabilities_at(logits, classifier.temperature), distances)

    return apply


def probabilities_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The pure function of stored samples `[batch, ...]` -> probabilities float32 `[batch, classes]`, or predicted
    numbers `[batch, 1]`."""
    predicted = predicted_by(classifier._replace(safeguards=None))
    return lambda images: predicted(images).probabilities


def logits_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The function of stored samples -> each model's logits, `[models, batch, classes]`."""
    outputs = outputs_of(classifier)
    return lambda images: stacked_logits(outputs(images))


def stacked_logits(each: Sequence[Output]) -> jax.Array:
    """The logits of several models' outputs, float32 `[models, batch, classes]`."""
    return jnp.stack([output.logits.astype(jnp.float32) for output in each])


def outputs_of(classifier: Classifier) -> Callable[[jax.Array], list[Output]]:
    """The function of stored samples -> each model's output."""
    whole, encoding = classifier.outline.whole, classifier.encoding

    def apply(samples: jax.Array) -> list[Output]:
        inputs = as_inputs(samples, encoding)
        return [whole.evaluate(jax.tree.map(jnp.asarray, model), inputs) for model in unstacked(classifier.models)]

    return apply


def features_of(classifier: Classifier) -> Callable[[jax.Array], jax.Array]:
    """The pure function of images -> features `[batch, m]` of the first model."""
    first = classifier._replace(models=jax.tree.map(lambda leaf: leaf[:1], classifier.models))
    outputs = outputs_of(first)
    return lambda images: outputs(images)[0].features


def in_batches(function: Callable[[jax.Array], jax.Array], images: np.ndarray, axis: int = 0) -> np.ndarray:
    """A function applied to `SAMPLES_AT_ONCE` samples at a time, its results joined along `axis`."""
    found: np.ndarray = in_compiled_batches(jax.jit(function), images, axis)
    return found


def in_compiled_batches(compiled: Callable[[jax.Array], PyTree], images: np.ndarray, axis: int = 0) -> Any:
    """`in_batches` of a jitted function, which is compiled at its first call; its results may be trees of arrays."""
    found = []
    for start in range(0, len(images), SAMPLES_AT_ONCE):
        some = np.asarray(images[start : start + SAMPLES_AT_ONCE])
        filled = np.pad(some, ((0, SAMPLES_AT_ONCE - len(some)), *[(0, 0)] * (some.ndim - 1)))
        own = partial(np.take, indices=np.arange(len(some)), axis=axis)
        found.append(jax.tree.map(own, jax.device_get(compiled(jnp.asarray(filled)))))
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=axis), *found)


def calibration(classifier: Classifier, trained: TrainedRun) -> tuple[float, int]:
    """The temperature fitted to the run's validation data, the client's own or, for an unseen domain, all clients'; and
    the number of these samples.

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
    logits = in_batches(logits_of(classifier), experiment.data.inputs[np.sort(rows)], axis=1)
    return fit_temperature(logits, experiment.data.labels[np.sort(rows)]), len(rows)
