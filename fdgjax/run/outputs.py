"""Output folders of a run: one, or one per member of a family that trains as one program."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.data.sources.arrays import content_digest
from fdgjax.distributed import is_coordinator
from fdgjax.experiments import Experiment, describe
from fdgjax.run.records import Checkpoint, Checkpoints, History, Workdir, open_checkpoints, write_description
from fdgjax.utils.errors import UserError


class RunOutput(NamedTuple):
    """One run's config and folder. Each member of a family gets the files it would write if trained alone."""

    config: Config
    workdir: Workdir


def places(outputs: Sequence[RunOutput]) -> list[slice]:
    """Each member's slice of the seeds of all members."""
    ends = [sum(output.config.seeds for output in outputs[: i + 1]) for i in range(len(outputs))]
    return [slice(end - output.config.seeds, end) for output, end in zip(outputs, ends, strict=True)]


def write_descriptions(outputs: Sequence[RunOutput], experiment: Experiment) -> None:
    """Process 0 writes the description of the experiment's data into each folder, if it is not there."""
    if is_coordinator():
        content = content_digest(experiment.data)
        for output, place in zip(outputs, places(outputs), strict=True):
            write_description(output.workdir, describe(experiment, place)._replace(content=content))


def open_outputs(outputs: Sequence[RunOutput], warn: Callable[[str], None]) -> Checkpoints:
    """The checkpoints of a run, or of all members of a family, each of which saves its own part of the state.

    Raises:
      UserError: like `open_checkpoints`; also from `restore`, if the members have reached different rounds.
    """
    if len(outputs) == 1:
        return open_checkpoints(outputs[0].workdir.checkpoints, warn)
    opened = contextlib.ExitStack()
    each = [
        opened.enter_context(contextlib.closing(open_checkpoints(output.workdir.checkpoints, warn)))
        for output in outputs
    ]
    where = places(outputs)

    def save(round_: int, state: PyTree, history: History, selected: PyTree | None = None) -> None:
        for one, place in zip(each, where, strict=True):
            own, chosen = jax.tree.map(partial(member_part, place=place), (state, selected))
            one.save(round_, own, History(history.records[place], history.seconds), chosen)

    def restore(like: PyTree) -> Checkpoint | None:
        found = [
            one.restore(jax.tree.map(partial(shape_of_part, place=place), like))
            for one, place in zip(each, where, strict=True)
        ]
        done = {len(one.history.records[0]) if one else 0 for one in found}
        if len(done) > 1:
            raise UserError(f"members of a family have come to rounds {sorted(done)}; expected the same round")
        return joined([one for one in found if one], where) if any(found) else None

    return Checkpoints(save, restore, opened.close)


def joined(found: Sequence[Checkpoint], where: Sequence[slice]) -> Checkpoint:
    """The checkpoint of a family, made of its members' checkpoints."""

    def of_all(trees: Sequence[PyTree]) -> PyTree:
        return jax.tree.map(lambda *own: stacked_seeds(own, where), *trees)

    records = [of_seed for one in found for of_seed in one.history.records]
    selected = [one.selected for one in found if one.selected is not None]
    return Checkpoint(
        of_all([one.state for one in found]),
        History(records, max(one.history.seconds for one in found)),
        jax.device_get(of_all(selected)) if len(selected) == len(found) else None,
    )


def member_part(leaf: jax.Array, place: slice) -> jax.Array:
    """A member's part of an array `[seeds, ...]`; a single seed has no such axis."""
    return leaf[place] if place.stop - place.start > 1 else leaf[place.start]


def shape_of_part(leaf: Any, place: slice) -> jax.ShapeDtypeStruct:
    """The shape, dtype and sharding of `member_part`."""
    seeds = place.stop - place.start
    shape = (seeds, *leaf.shape[1:]) if seeds > 1 else leaf.shape[1:]
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=leaf.sharding)


def stacked_seeds(parts: Sequence[jax.Array], where: Sequence[slice]) -> jax.Array:
    """The array `[seeds, ...]` of all seeds, joined from the members' parts."""
    with_axis = [leaf if place.stop - place.start > 1 else leaf[None] for leaf, place in zip(parts, where, strict=True)]
    return jnp.concatenate(with_axis)
