"""When not to trust a prediction: conformal sets and distances from the training images, both by a run's own clients.

They are measured once, at the end of `fdgjax train`, and kept in the run's folder (`safeguards.npz`, in that of each
seed), so that predictions need no data. They are those of the model for unseen domains, after the round that predicts
by default. Labels of the unseen domain are used for its figures alone, and set nothing.
"""

import io
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.contract import Output, Variables
from fdgjax.evaluation.conformal import prediction_sets, scores_of, upper_quantile
from fdgjax.evaluation.feature_distance import FeatureSpace, added, distances_in, feature_space, feature_sums
from fdgjax.evaluation.features import Evaluated, outputs_of_rows
from fdgjax.experiments import Experiment
from fdgjax.inference.temperature import fit_temperature, probabilities_at
from fdgjax.inference.trained_run import TrainedModels, TrainedRun, trained_seed, unstacked
from fdgjax.run.records import Workdir
from fdgjax.run.records.workdir import seed_workdir
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import write_bytes

LOGGER = logging.getLogger(__name__)
COVERAGE, NEAR = 0.9, 0.95
"""The coverage of sets, and the share of the clients' images that count as near, in a run's figures."""
EXPORTED = (0.8, 0.9, 0.95, 0.99)
"""The values of coverage for which an export has sets."""
MOST_FEATURES = 4096
"""The most features of which the distance is made: their covariance has the square of their number."""
ROWS_AT_ONCE = 4096
"""Training images whose features are held at once."""


class Safeguards(NamedTuple):
    """What a model's predictions are compared with.

    round: after which the model is. temperature: fitted to the clients' held-out images (`fit_temperature`).
    scores: `1 - p(label)` of these n images, `[2, n]`: with a temperature of 1, and with the fitted one.
    distances: of the same images from the training images, `[n]`; space: what they are computed from.
    figures: for a temperature of 1 (`plain`) and for the fitted one (`calibrated`) those of the clients' own images
      (`own`) and of the unseen domain's (`unseen`, if there is one), see `figures_of`.
    """

    round: int
    temperature: float
    scores: np.ndarray
    distances: np.ndarray
    space: FeatureSpace
    figures: Mapping[str, Mapping[str, Any]]

    def set_quantile(self, coverage: float, calibrated: bool) -> float:
        """The largest score of a class that is in a set, see `fdgjax.evaluation.conformal`."""
        return upper_quantile(self.scores[int(calibrated)], coverage)

    def exported(self, calibrated: bool) -> dict[str, float]:
        """`set_quantile` of the values in `EXPORTED`, by these; 1, which all classes reach, instead of infinity."""
        return {f"{coverage:g}": min(self.set_quantile(coverage, calibrated), 1.0) for coverage in EXPORTED}

    def farthest(self, share: float) -> float:
        """The distance that a share of the clients' own images do not exceed."""
        return upper_quantile(self.distances, share)


class Seen(NamedTuple):
    """Images as a model sees them: logits `[models, n, classes]`, labels `[n]`, distances `[n]`."""

    logits: np.ndarray
    labels: np.ndarray
    distances: np.ndarray

    def at(self, places: np.ndarray) -> "Seen":
        """Some of the images."""
        return Seen(self.logits[:, places], self.labels[places], self.distances[places])


def has_labels(trained: TrainedModels) -> bool:
    """Whether the method classifies and the clients have labels."""
    return trained.classifies and trained.outline.config.data.protocol != "labelled_server"


def safeguards_of(trained: TrainedRun, models: Variables, client: int | None = None) -> Safeguards:
    """The safeguards of models, measured on the run's data.

    Args:
      trained: the run. models: whose probabilities are averaged, stacked `[models, ...]`; features are the first's.
      client: whose images are used; None for those of all clients.

    Raises:
      UserError: the clients have no labels, or no held-out images.
    """
    experiment, parts = trained.experiment, trained.parts
    if not has_labels(trained):
        raise UserError(
            f"the clients of a run of '{experiment.config.method.name}' by the protocol "
            f"'{experiment.config.data.protocol}' train without labels; expected labelled ones: sets and distances "
            "need them"
        )
    chosen = slice(None) if client is None else slice(client, client + 1)
    held_out = np.sort(np.concatenate(parts.validation[chosen]))
    if not len(held_out):
        raise UserError(
            "got no held-out images of the clients; expected some, of which sets and distances are computed"
        )
    first, data = unstacked(models)[0], experiment.data
    chunks = [rows[i : i + ROWS_AT_ONCE] for rows in parts.train[chosen] for i in range(0, len(rows), ROWS_AT_ONCE)]
    sums = (
        feature_sums(found, data.labels[rows], len(data.class_names))
        for rows, found in zip(chunks, outputs(trained, [(first, rows) for rows in chunks], features_in), strict=True)
    )
    space = feature_space(added(sums))
    own = seen(trained, models, space, held_out)
    unseen = seen(trained, models, space, parts.target) if len(parts.target) else None
    temperature = fit_temperature(own.logits, own.labels)
    return Safeguards(
        round=trained.round,
        temperature=temperature,
        scores=np.sort([score(own, value) for value in (1.0, temperature)]),
        distances=np.sort(own.distances),
        space=space,
        figures={
            name: {
                "own": figures_of(half_by_half(own, calibrated)),
                **({} if unseen is None else {"unseen": figures_of(compared(own, unseen, calibrated))}),
            }
            for name, calibrated in (("plain", False), ("calibrated", True))
        },
    )


def outputs(trained: TrainedRun, evaluated: Evaluated, read: Callable[[Output], Any]) -> Any:
    """What `read` takes of the outputs for the run's images, see `outputs_of_rows`."""
    experiment = trained.experiment
    return outputs_of_rows(experiment.model, trained.federation, evaluated, experiment.config.eval_batch_size, read)


def features_in(output: Output) -> jax.Array:
    """The features that distances are of: the last layer's input, or the logits, where that is empty or has more than
    `MOST_FEATURES`."""
    return output.features if 0 < output.features.shape[1] <= MOST_FEATURES else output.logits


def seen(trained: TrainedRun, models: Variables, space: FeatureSpace, rows: np.ndarray) -> Seen:
    """The images at `rows` as the models see them."""
    evaluated = [(own, rows) for own in unstacked(models)]
    each = list(outputs(trained, evaluated, lambda output: (output.logits, distances_in(space, features_in(output)))))
    return Seen(np.stack([logits for logits, _ in each]), trained.experiment.data.labels[rows], each[0][1])


def score(images: Seen, temperature: float) -> np.ndarray:
    """The scores of images with their labels, `[n]`."""
    return scores_of(np.asarray(probabilities_at(images.logits, temperature)), images.labels)


class Compared(NamedTuple):
    """Of each image `[n]`: whether its set has its class, the set's size, whether it is far, and predicted right."""

    covered: np.ndarray
    size: np.ndarray
    far: np.ndarray
    right: np.ndarray


def compared(reference: Seen, tested: Seen, calibrated: bool) -> Compared:
    """Images beside those that the temperature and the quantiles, at `COVERAGE` and `NEAR`, are taken from."""
    temperature = fit_temperature(reference.logits, reference.labels) if calibrated else 1.0
    p = np.asarray(probabilities_at(tested.logits, temperature))
    sets = prediction_sets(p, upper_quantile(score(reference, temperature), COVERAGE))
    return Compared(
        sets[np.arange(len(p)), tested.labels],
        sets.sum(axis=1),
        tested.distances > upper_quantile(reference.distances, NEAR),
        p.argmax(axis=1) == tested.labels,
    )


def half_by_half(images: Seen, calibrated: bool) -> Compared:
    """Each random half of the images beside the other: what quantiles of images do to others like them."""
    halves = np.array_split(np.random.default_rng(0).permutation(len(images.labels)), 2)
    if not len(halves[1]):
        return Compared(*np.zeros((4, 0)))
    each = [compared(images.at(a), images.at(b), calibrated) for a, b in (halves, halves[::-1])]
    return Compared(*map(np.concatenate, zip(*each, strict=True)))


def figures_of(found: Compared) -> dict[str, float | int | None]:
    """Shares of n images, None of none: whose set has the class (`coverage`) or nothing (`empty`), that are far
    (`far`), and predicted right, of all, of the near and of the far ones; and the sets' mean size."""
    far = np.asarray(found.far, bool)

    def mean(values: np.ndarray) -> float | None:
        return float(np.mean(values)) if len(values) else None

    return {
        "n": len(far),
        "coverage": mean(found.covered),
        "size": mean(found.size),
        "empty": mean(found.size == 0),
        "far": mean(far),
        "accuracy": mean(found.right),
        "accuracy_near": mean(found.right[~far]),
        "accuracy_far": mean(found.right[far]),
    }


def keep_safeguards(experiment: Experiment, path: Path) -> None:
    """Measures the safeguards of each seed of a finished run, and keeps them in its folder, unless they are there.

    A run whose clients have no labels, of several processes, or without its checkpoints keeps none.
    """
    if jax.process_count() > 1 or not Workdir(path).checkpoints.is_dir():
        return
    for index in range(len(experiment.seeds)):
        file = file_of(experiment.config.seeds, experiment.seeds[index], path)
        trained = trained_seed(experiment, path, index)
        if not has_labels(trained):
            return
        if read_safeguards(file, trained.round) is None:
            write_safeguards(file, safeguards_of(trained, trained.unseen_variables()))


def kept_safeguards(trained: TrainedModels, path: Path) -> Safeguards | None:
    """What `keep_safeguards` kept for the model for unseen domains; None for nothing, or for that of another round."""
    return read_safeguards(file_of(trained.outline.config.seeds, trained.seed, path), trained.round)


def file_of(seeds: int, seed: int, path: Path) -> Path:
    """The file of a seed in a run's folder."""
    return (Workdir(path) if seeds == 1 else seed_workdir(Workdir(path), seed)).safeguards


def write_safeguards(file: Path, found: Safeguards) -> None:
    """Writes a file that NumPy reads; its parts have checksums (CRC-32)."""
    stream, facts = io.BytesIO(), {"round": found.round, "temperature": found.temperature, "figures": found.figures}
    arrays = {"scores": found.scores, "distances": found.distances, **found.space._asdict()}
    np.savez(stream, facts=np.array(json.dumps(facts)), **arrays)
    write_bytes(file, stream.getvalue())


def read_safeguards(file: Path, round_: int) -> Safeguards | None:
    """What `write_safeguards` wrote for a round's model; None if there is nothing, or, with a warning, if it is
    damaged."""
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as held:
            facts = json.loads(str(held["facts"]))
            space = FeatureSpace(*(held[name] for name in FeatureSpace._fields))
            found = Safeguards(scores=held["scores"], distances=held["distances"], space=space, **facts)
    except Exception as error:  # NumPy and zipfile document no list of errors for damaged files
        LOGGER.warning(f"{file} is damaged ({type(error).__name__}) and left out")
        return None
    return found if found.round == round_ else None
