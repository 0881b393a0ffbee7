"""A run's classifier, adapted to new images without labels."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fdgjax.contract import AdaptFn, Variables
from fdgjax.data.encoding import Encoding
from fdgjax.data.federation import Federation, Partition, federate
from fdgjax.data.pixels import as_floats
from fdgjax.data.sources.domains import Domains
from fdgjax.engine.clients import repeat_of
from fdgjax.evaluation.adaptation import adapt
from fdgjax.experiments import Outline
from fdgjax.experiments.regression_checks import OF_CLASSES
from fdgjax.inference.classifier import Chosen, Classifier, in_batches, open_classifier, predicted_by
from fdgjax.inference.new_samples import NewSamples, samples_at
from fdgjax.inference.predictor import Predictor
from fdgjax.inference.tensors import facts_of
from fdgjax.methods.parts.adaptations import ADAPTATIONS, adaptation_of
from fdgjax.run.records import Workdir
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import Purpose, stream
from fdgjax.utils.registry import lookup

OF_RUN = "own"
"""The adaptation that the run was tested with, instead of an entry of `ADAPTATIONS`."""


def adapted_predictor(run: Path, chosen: Chosen, kind: str, paths: Sequence[Path]) -> tuple[Predictor, NewSamples]:
    """The predictor of a run, each of its models adapted to all new samples at once, and the samples as they were read.

    Args:
      run: the run's folder.
      chosen: which of the run's models.
      kind: an entry of `ADAPTATIONS`, with the run's other settings of `config.adaptation`; `OF_RUN` for what the run
        was tested with.
      paths: the new samples, files or folders of them.

    Raises:
      UserError: an export, a kind that does not fit the model, no adaptation; or like `open_classifier` and
        `samples_at`.
    """
    if not Workdir(run).config.is_file():
        raise UserError(f"--adapt got {run}, which is no run's folder; expected one: an export cannot be adapted")
    classifier = open_classifier(run, chosen)
    facts = facts_of(classifier)
    samples = samples_at(facts, paths)
    samples = samples._replace(pieces=list(samples.pieces))
    stored = np.concatenate([some for _, some in samples.pieces])
    function, inputs = adaptation_for(classifier.outline, kind, stored)
    fitted = classifier._replace(models=adapted_models(classifier, function, inputs), safeguards=None)
    return Predictor(facts, predicted_by(fitted)), samples


def adaptation_for(outline: Outline, kind: str, images: np.ndarray) -> tuple[AdaptFn, np.ndarray]:
    """The adaptation, and the inputs of the model that it was made for: the images, or their features from frozen
    stages."""
    if kind != OF_RUN:
        lookup("--adapt", kind, ADAPTATIONS)
        if outline.data.numeric and kind in OF_CLASSES:
            raise UserError(
                f"--adapt got {kind}, which needs classes, and this model predicts numbers; expected statistics"
            )
        how = dataclasses.replace(outline.config.adaptation, kind=kind, scope="domain")
        if (chosen := adaptation_of(outline.whole, how, None)) is not None:
            return chosen, images
    elif (chosen := outline.method.adapt) is not None:
        keeps_features = outline.trunk is not None and outline.data.samples[1:] != outline.data.sample_shape
        trunk = outline.trunk if keeps_features else None
        return chosen, in_batches(lambda some: trunk(as_floats(some)), images) if trunk else images
    others = ", ".join(name for name in ADAPTATIONS if name not in ("own", "none"))
    raise UserError(
        f"--adapt got no adaptation: method '{outline.config.method.name}' has none of its own, and the run was tested "
        f"without; expected --adapt followed by one of {others}"
    )


def adapted_models(classifier: Classifier, function: AdaptFn, inputs: np.ndarray) -> Variables:
    """The classifier's models, stacked `[models, ...]`, each adapted to all inputs `[n, ...]`."""
    trained, config = classifier.trained, classifier.outline.config
    federation = unlabelled(inputs, classifier.encoding)
    rows = jax.tree.map(lambda leaf: leaf[0], federation.target)

    def of_model(federation: Federation, variables: Variables) -> Variables:
        return adapt(
            function,
            variables,
            rows,
            federation=federation,
            batch_size=config.adaptation.batch_size or config.batch_size,
            round_=jnp.int32(trained.round),
            key=stream(trained.state.seed, Purpose.ADAPTATION, trained.state.round),
            repeat=repeat_of(classifier.outline.execution),
        )

    run = jax.jit(lambda federation, models: jax.lax.map(lambda one: of_model(federation, one), models))
    found: Variables = jax.device_get(run(federation, classifier.models))
    return found


def unlabelled(stored: np.ndarray, encoding: Encoding | None) -> Federation:
    """A federation without clients, whose unseen domain has these samples."""
    count, nothing = len(stored), np.zeros(0, np.int32)
    domains = Domains(stored, np.zeros(count, np.int32), np.zeros(count, np.int32), ("new",), ("unknown",))
    parts = Partition([nothing], [nothing], [nothing], np.arange(count), nothing)
    return federate(domains, parts, batch_size=1, drop_last=False)._replace(encoding=encoding)
