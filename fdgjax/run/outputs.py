"""Output folders of a run: one, or one per member of a family that trains as one program."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fdgjax.config import Config
from fdgjax.contract import PyTree
from fdgjax.run.records import Checkpoints, History, Workdir, open_checkpoints
from fdgjax.utils.errors import UserError


class RunOutput(NamedTuple):
    """One run's config and folder. Each member of a family gets the files it would write if trained alone."""

    config: Config
    workdir: Workdir


def places(outputs: Sequence[RunOutput]) -> list[slice]:
    """Each member's slice of the seeds of all members."""
    ends = [sum(output.config.seeds for output in outputs[: i + 1]) for i in range(len(outputs))]
    return [slice(end - output.config.seeds, end) for output, end in zip(outputs, ends, strict=True)]


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

    def save(round_: int, state: PyTree, history: History) -> None:
        for one, place in zip(each, where, strict=True):
            own = jax.tree.map(partial(member_part, place=place), state)
            one.save(round_, own, History(history.records[place], history.seconds))

    def restore(like: PyTree) -> tuple[PyTree, History] | None:
        found = [
            one.restore(jax.tree.map(partial(shape_of_part, place=place), like))
            for one, place in zip(each, where, strict=True)
        ]
        done = {len(one[1].records[0]) if one else 0 for one in found}
        if len(done) > 1:
            raise UserError(f"members of a family have come to rounds {sorted(done)}; expected the same round")
        if not any(found):
            return None
        states, histories = zip(*[one for one in found if one], strict=True)
        whole = jax.tree.map(lambda *own: stacked_seeds(own, where), *states)
        records = [of_seed for history in histories for of_seed in history.records]
        return whole, History(records, max(history.seconds for history in histories))

    return Checkpoints(save, restore, opened.close)


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
