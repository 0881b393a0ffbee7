"""Attacks, for experiments: hostile clients that send forged updates, or that train on poisoned batches."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fdgjax.aggregation.updates import row_norms
from fdgjax.aggregation.weighting import keep_rows, per_row
from fdgjax.contract import Batch, Context, Method, Objective, ObjectiveResult, PyTree, Variables
from fdgjax.data.federation import Federation
from fdgjax.engine.dependence import depends
from fdgjax.engine.local import Batching, training_batch
from fdgjax.engine.traffic import traffic
from fdgjax.utils.errors import UserError
from fdgjax.utils.random import any_key
from fdgjax.utils.words import words_of

Forge = Callable[[PyTree, jax.Array, float, jax.Array], PyTree]
"""Forged updates: `(updates [participants, ...], who is honest [participants], strength, key) -> [participants, ...]`;
the rows of hostile clients are sent instead of their own."""
Poison = Callable[[Batch, float, int], Batch]
"""A poisoned minibatch: `(batch, strength, classes) -> batch`."""


class Kind(NamedTuple):
    """A kind of attack: what it does in words, and either the updates it forges or the batches it poisons.

    pixels: whether it changes images, which features that frozen stages computed once would not contain.
    graded: whether it reads its strength. idle: the strength at which it does nothing, None if there is none.
    share: whether its strength is a share of a minibatch's samples.
    wanted: a batch with the labels that the attacker wants predicted, with mask 0 for samples that do not count; None
      for an attack whose success is lost accuracy.
    """

    summary: str
    forge: Forge | None = None
    poison: Poison | None = None
    pixels: bool = False
    graded: bool = True
    idle: float | None = None
    share: bool = False
    wanted: Callable[[Batch], Batch] | None = None


class Attack(NamedTuple):
    """An attack: its kind, the ids of the hostile clients, its strength, its first round (from 1), and the number of
    classes of the data."""

    kind: Kind
    ids: tuple[int, ...]
    strength: float = 1.0
    from_round: int = 1
    classes: int = 2


def of_leaves(function: Callable[[jax.Array], jax.Array]) -> Forge:
    """Forged updates, leaf by leaf."""
    return lambda updates, honest, strength, key: jax.tree.map(function, updates)


def scaled_update(updates: PyTree, honest: jax.Array, strength: float, key: jax.Array) -> PyTree:
    """`s u_i`."""
    return jax.tree.map(lambda u: u * jnp.asarray(strength, u.dtype), updates)


def flipped(updates: PyTree, honest: jax.Array, strength: float, key: jax.Array) -> PyTree:
    """`-s u_i`."""
    return scaled_update(updates, honest, -strength, key)


def noise(updates: PyTree, honest: jax.Array, strength: float, key: jax.Array) -> PyTree:
    """Normal noise whose expected norm is about `s |u_i|`."""
    leaves, treedef = jax.tree.flatten(updates)
    size = max(sum(leaf[0].size for leaf in leaves), 1)
    each = strength * row_norms(updates) / np.float32(size**0.5)
    drawn = [
        per_row(each, leaf.ndim).astype(leaf.dtype) * jax.random.normal(one, leaf.shape, leaf.dtype)
        for one, leaf in zip(jax.random.split(key, len(leaves)), leaves, strict=True)
    ]
    return jax.tree.unflatten(treedef, drawn)


def honest_mean(leaf: jax.Array, honest: jax.Array) -> jax.Array:
    """The mean over honest participants, `[1, ...]`."""
    total = jnp.sum(jnp.where(per_row(honest, leaf.ndim), leaf, 0), axis=0, keepdims=True)
    return total / jnp.maximum(jnp.sum(honest), 1).astype(leaf.dtype)


def little(updates: PyTree, honest: jax.Array, strength: float, key: jax.Array) -> PyTree:
    """`mean - s std` of the honest updates, in every coordinate: a shift that hides in their spread."""

    def forged(leaf: jax.Array) -> jax.Array:
        mean = honest_mean(leaf, honest)
        spread = jnp.sqrt(honest_mean((leaf - mean) ** 2, honest))
        return jnp.broadcast_to(mean - jnp.asarray(strength, leaf.dtype) * spread, leaf.shape)

    return jax.tree.map(forged, updates)


def opposed(updates: PyTree, honest: jax.Array, strength: float, key: jax.Array) -> PyTree:
    """`-s mean` of the honest updates: a negative inner product with what they want."""

    def forged(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(-jnp.asarray(strength, leaf.dtype) * honest_mean(leaf, honest), leaf.shape)

    return jax.tree.map(forged, updates)


def flip_labels(batch: Batch, strength: float, classes: int) -> Batch:
    """Class c becomes class `classes - 1 - c`."""
    return batch._replace(labels=classes - 1 - batch.labels)


TARGET = 0
"""The class that a backdoor opens to."""


def with_trigger(images: jax.Array) -> jax.Array:
    """The images `[..., height, width, channels]` with a white square in the lower right corner, an eighth wide."""
    height, width = images.shape[-3:-1]
    return images.at[..., -max(1, height // 8) :, -max(1, width // 8) :, :].set(1)


def open_backdoor(batch: Batch, strength: float, classes: int) -> Batch:
    """A share `s` of the samples of every minibatch shows the trigger, and has the label `TARGET`."""
    rank = jnp.cumsum(batch.mask) - 1
    shown = (batch.mask > 0) & (rank < jnp.round(strength * jnp.sum(batch.mask)))
    images = jnp.where(per_row(shown, batch.inputs.ndim), with_trigger(batch.inputs), batch.inputs)
    return batch._replace(inputs=images, labels=jnp.where(shown, TARGET, batch.labels))


def behind_backdoor(batch: Batch) -> Batch:
    """All samples of other classes than `TARGET`, with the trigger and that label."""
    labels = jnp.full_like(batch.labels, TARGET)
    others = (batch.labels != TARGET).astype(batch.mask.dtype)
    return Batch(with_trigger(batch.inputs), labels, batch.mask * others)


ATTACKS: Mapping[str, Kind] = {
    "none": Kind("no attack"),
    "scale": Kind("`s u`: strength 1e6, or 1e30, which no float32 squares", scaled_update, idle=1.0),
    "nan": Kind("an update of NaN", of_leaves(lambda u: jnp.full_like(u, jnp.nan)), graded=False),
    "sign_flip": Kind("`-s u`", flipped),
    "gaussian": Kind("normal noise of `s` times the update's norm (Blanchard et al., 2017)", noise),
    "label_flip": Kind(
        "trains on class `C - 1 - c` instead of class c (Fang et al., 2020)", poison=flip_labels, graded=False
    ),
    "backdoor": Kind(
        "a share `s` of its batches has a trigger and one label (Gu et al., 2017)",
        poison=open_backdoor,
        pixels=True,
        idle=0.0,
        share=True,
        wanted=behind_backdoor,
    ),
    "little_is_enough": Kind("`mean - s std` of the honest updates (Baruch et al., 2019)", little),
    "inner_product": Kind("`-s mean` of the honest updates (Xie et al., 2020)", opposed),
}
"""The kinds of attacks by name; `s` is the strength."""


def hostile_ids(clients: int, ids: str) -> tuple[int, ...]:
    """The ids of the hostile clients: those of the list, separated by commas, or the first `clients` if it is empty.

    Raises:
      UserError: an entry of the list that is not a number.
    """
    words = words_of(ids)
    if not all(word.isdecimal() for word in words):
        raise UserError(f"config.attack.ids got '{ids}'; expected clients' numbers separated by commas, such as 0,3")
    return tuple(map(int, words)) or tuple(range(clients))


def reads_labels(method: Method, federation: Federation, batching: Batching) -> bool:
    """Whether the clients' loss depends on the labels of its minibatch, be they the data's or pseudo-labels."""
    shapes, size = traffic(method, federation), batching.batch_size
    rows, mask = (jax.ShapeDtypeStruct((size,), kind) for kind in (jnp.int32, jnp.float32))

    def batch_of(federation: Federation, rows: jax.Array, mask: jax.Array, key: jax.Array) -> Batch:
        return training_batch(batching, federation, rows, mask, key)

    def loss(
        labels: jax.Array, batch: Batch, key: jax.Array, variables: Variables, context: Context
    ) -> ObjectiveResult:
        labelled = batch._replace(labels=labels)
        further = labelled if method.extra_batch else ()
        return method.objective(variables, labelled._replace(extra_batch=further), key, context)

    batch = jax.eval_shape(batch_of, federation, rows, mask, any_key())
    return depends(loss, batch.labels, batch, any_key(), shapes.received, shapes.context)


def check_attack(
    attack: Attack, clients: int, *, images: bool, features: bool, unlabelled: bool, updates: bool
) -> None:
    """Raises a `UserError` for an attack by clients that do not exist, or without effect on the training.

    Args:
      attack: what is checked.
      clients: number of clients that train.
      images: whether samples are images.
      features: whether images were replaced by features before training.
      unlabelled: whether the method's clients learn without labels.
      updates: whether the method's clients send updates.
    """
    if not 0 < len(set(attack.ids)) < clients or max(attack.ids) >= clients:
        raise UserError(
            f"config.attack got the hostile clients {sorted(set(attack.ids))} of {clients}; expected some of the "
            f"numbers 0 to {clients - 1}, not all; lower config.attack.clients or change config.attack.ids"
        )
    if attack.kind.pixels and not images:
        raise UserError(
            "config.attack.kind got an attack on images, but the samples are none; expected one on labels or updates, "
            "such as label_flip or sign_flip"
        )
    if attack.kind.pixels and features:
        raise UserError(
            "config.attack.kind got an attack on images, but the frozen stages' features of them are computed once; "
            "expected --config.model.keep_features=False"
        )
    if attack.kind.poison and unlabelled:
        raise UserError(
            "config.attack.kind got an attack on labels, but the method's clients learn without labels; expected one "
            "on updates, such as sign_flip"
        )
    if attack.kind.forge and not updates:
        raise UserError(
            "config.attack.kind got an attack on updates, but the method's clients send no update; expected one on "
            "what they train on, such as label_flip"
        )


def is_hostile(attack: Attack, ids: jax.Array, round_: jax.Array) -> jax.Array:
    """Whether clients with these ids attack in this round (from 0), of the shape of `ids`."""
    return jnp.isin(ids, np.asarray(attack.ids, np.int32)) & (round_ + 1 >= attack.from_round)


def forge(attack: Attack, method: Method, messages: PyTree, hostile: jax.Array, key: jax.Array) -> PyTree:
    """The messages `[participants, ...]` with the forged updates of the hostile ones."""
    updates = method.updates.get(messages)
    if attack.kind.forge is None or not jax.tree.leaves(updates):
        return messages
    forged = attack.kind.forge(updates, ~hostile, attack.strength, key)
    return method.updates.set(messages, keep_rows(hostile, forged, updates))


def poisoned(attack: Attack, objective: Objective, hostile: jax.Array) -> Objective:
    """The objective of one client, on poisoned batches where it is hostile; `extra_batch` is poisoned, too."""
    poison = attack.kind.poison
    if poison is None:
        return objective

    def changed_of(batch: Batch) -> Batch:
        further = batch.extra_batch
        changed = poison(batch, attack.strength, attack.classes)
        return changed._replace(extra_batch=changed_of(further) if isinstance(further, Batch) else ())

    def on_poison(variables: Variables, batch: Batch, key: jax.Array, context: Context) -> ObjectiveResult:
        changed = changed_of(batch)
        mixed = optax.tree.where(hostile, changed, batch)
        return objective(variables, mixed, key, context)

    return on_poison
