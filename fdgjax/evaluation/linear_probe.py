"""Linear evaluation: the accuracy of a linear classifier on a frozen encoder's features."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.contract import Output
from fdgjax.data.groups import classes_of_groups
from fdgjax.utils.errors import UserError
from fdgjax.utils.fields import key


def encoder_features(output: Output) -> jax.Array:
    """The encoder's features; raises a `UserError` for a network that tells none."""
    if not output.features.shape[-1]:
        raise UserError(
            "config.probe.layer got 'features', and the network has none; expected projection, or a network that sows "
            'its last layer\'s input: self.sow("intermediates", "features", x)'
        )
    return output.features


LAYERS: Mapping[str, Callable[[Output], jax.Array]] = {
    "projection": lambda output: output.logits,
    "features": encoder_features,
}
"""The input of a probe: the output of the model's projection, as in FedGaLA's official code, or the encoder's features.
"""


@dataclasses.dataclass(frozen=True)
class Probing:
    """How features are evaluated.

    percent: the percentages of the unseen domain's samples on which the classifier is trained, separated by commas; it
      is tested on the others.
    layer: what the classifier reads, an entry of `LAYERS`.
    repeats: number of splits, each with its own classifier.
    standardise: whether features are standardised by the training samples, so that one learning rate serves all.
    epochs, batch_size, learning_rate: of the classifier's training, by Adam.
    """

    percent: str = "10,30"
    layer: str = key("projection", names=LAYERS)
    repeats: int = key(3, least=1)
    standardise: bool = True
    epochs: int = key(100, least=1)
    batch_size: int = key(128, least=1)
    learning_rate: float = key(1e-3, between=(0, math.inf), words="a number above 0")

    @property
    def percents(self) -> tuple[int, ...]:
        """`percent` as numbers.

        Raises:
          UserError: a part that is not a whole number from 1 to 99.
        """
        words = self.percent.split(",")
        numbers = tuple(int(word) for word in words if word.strip().isdecimal())
        if len(numbers) < len(words) or not all(1 <= number <= 99 for number in numbers):
            raise UserError(
                f"config.probe.percent got '{self.percent}'; expected whole numbers from 1 to 99 with commas between, "
                "such as 10,30"
            )
        return numbers


class Split(NamedTuple):
    """Positions among the samples, for each repeat: int32 `[repeats, train]` and `[repeats, test]`."""

    train: np.ndarray
    test: np.ndarray


def random_splits(
    labels: np.ndarray, percent: int, repeats: int, seed: int, groups: np.ndarray | None = None
) -> list[Split]:
    """Random splits: all in one `Split`, or of grouped samples, whose splits differ in size, each in its own.

    A split depends on the seed, the percentage and its own number, so that more repeats do not change the first ones.

    Args:
      labels: int `[samples]`.
      percent: for training, 1 to 99.
      repeats: number of splits.
      seed: of the splits.
      groups: int `[samples]`, see `fdgjax.data.groups`; None for samples that are not grouped.

    Raises:
      UserError: like `stratified_split` or `grouped_split`.
    """
    each = [np.random.default_rng(np.random.SeedSequence([seed, 3, percent, repeat])) for repeat in range(repeats)]
    if groups is None:
        return [stratified_split(labels, percent, each)]
    return [grouped_split(labels, percent, rng, groups) for rng in each]


def grouped_split(labels: np.ndarray, percent: int, rng: np.random.Generator, groups: np.ndarray) -> Split:
    """A single random split of whole groups: a group of each class for training, of
    the class with the fewest groups first, and, in a random order, others as long as they fit into the percentage. Each
    class keeps a group for the test.

    Raises:
      UserError: a class whose samples are all of one group, or of groups that other classes need.
    """
    size = round(len(labels) * percent / 100)
    unit, has = classes_of_groups(labels, groups)
    counts, order, taken = np.bincount(unit), rng.permutation(len(has)), np.zeros(len(has), bool)

    def free(group: int) -> bool:
        """Whether a group may be taken, and each class has another one left."""
        return not taken[group] and bool(np.all(has[~taken].sum(axis=0) > has[group]))

    for label in np.argsort(has.sum(axis=0), kind="stable"):
        if has[taken, label].any():
            continue
        own = [group for group in order if has[group, label] and free(group)]
        if not own:
            raise UserError(
                f"class {np.unique(labels)[label]} has {has[:, label].sum()} group(s) of samples in the unseen domain; "
                "expected groups of each class to train the probe on and others to test it; leave config.data.group "
                "out, or group otherwise"
            )
        taken[own[0]] = True
    for group in order:
        if counts[taken].sum() + counts[group] <= size and free(group):
            taken[group] = True
    return Split(*(np.flatnonzero(part)[None].astype(np.int32) for part in (taken[unit], ~taken[unit])))


def stratified_split(labels: np.ndarray, percent: int, each: Sequence[np.random.Generator]) -> Split:
    """Random splits, one by each generator, in which every class has the same share of its samples, at least one, for
    training.

    Raises:
      UserError: a class with a single sample.
    """
    classes, counts = np.unique(labels, return_counts=True)
    if counts.min() < 2:
        raise UserError(
            f"class {classes[counts.argmin()]} has a single sample in the unseen domain; expected at least 2, one to "
            "train the probe on and one to test it"
        )
    rows = [np.flatnonzero(labels == label) for label in classes]
    trains, tests = [], []
    for rng in each:
        shuffled = [rng.permutation(own) for own in rows]
        cuts = [min(max(1, round(len(own) * percent / 100)), len(own) - 1) for own in rows]
        trains.append(np.concatenate([own[:cut] for own, cut in zip(shuffled, cuts, strict=True)]))
        tests.append(np.concatenate([own[cut:] for own, cut in zip(shuffled, cuts, strict=True)]))
    return Split(np.stack(trains).astype(np.int32), np.stack(tests).astype(np.int32))


def standardised(features: jax.Array, train: jax.Array) -> jax.Array:
    """Features `[samples, m]` less the training samples' mean, over their deviation."""
    mean, deviation = jnp.mean(features[train], axis=0), jnp.std(features[train], axis=0)
    return (features - mean[None]) / jnp.where(deviation > 0, deviation, 1)[None]


@partial(jax.jit, static_argnames=("classes", "how"))
def linear_probe(
    keys: jax.Array,
    features: jax.Array,
    labels: jax.Array,
    train: jax.Array,
    test: jax.Array,
    classes: int,
    how: Probing,
) -> jax.Array:
    """The accuracy, in [0, 1], of a linear classifier trained on some samples and tested on others, for each repeat.

    Features are standardised by the training samples' mean and deviation (`how.standardise`); the classifier starts at
    zero and is trained by Adam on cross-entropy in shuffled minibatches, a last partial one left out unless it is the
    only one.

    Args:
      keys: of the shuffling, `[repeats]`.
      features: `[samples, m]`. labels: int `[samples]`.
      train, test: positions, `[repeats, ...]`.
      classes: K.
      how: the classifier's training.

    Returns:
      `[repeats]`.
    """

    def one(key: jax.Array, train: jax.Array, test: jax.Array) -> jax.Array:
        scaled = standardised(features, train) if how.standardise else features
        size = min(how.batch_size, len(train))
        steps = len(train) // size
        optimizer = optax.adam(how.learning_rate)

        def loss(weights: tuple[jax.Array, jax.Array], rows: jax.Array) -> jax.Array:
            logits = scaled[rows] @ weights[0] + weights[1][None]
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows]))

        def epoch(carry: tuple, key: jax.Array) -> tuple:
            batches = jax.random.permutation(key, train)[: steps * size].reshape(steps, size)

            def step(carry: tuple, rows: jax.Array) -> tuple:
                weights, state = carry
                with jax.numpy_dtype_promotion("standard"):
                    updates, state = optimizer.update(jax.grad(loss)(weights, rows), state)
                return (optax.apply_updates(weights, updates), state), None

            return jax.lax.scan(step, carry, batches)

        zero = (jnp.zeros((features.shape[1], classes)), jnp.zeros(classes))
        ((kernel, bias), _), _ = jax.lax.scan(epoch, (zero, optimizer.init(zero)), jax.random.split(key, how.epochs))
        guess = jnp.argmax(scaled[test] @ kernel + bias[None], axis=1)
        return jnp.mean((guess == labels[test]).astype(jnp.float32))

    return jax.vmap(one)(keys, train, test)
