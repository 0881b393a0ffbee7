"""Checkpoints of the whole state with the history so far, so that a resumed run equals an uninterrupted one."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import orbax.checkpoint as ocp

from fdgjax.contract import PyTree
from fdgjax.evaluation.metrics import Record


class History(NamedTuple):
    """The part of a checkpoint besides the state: for each seed the records of its rounds, and the seconds so far."""

    records: list[list[Record]]
    seconds: float


class Checkpoints(NamedTuple):
    """save: `(round, state, history)`, atomic, the last two kept. restore: the newest as `(state, history)`, given a
    state of the same structure; None where there is none."""

    save: Callable[[int, PyTree, History], None]
    restore: Callable[[PyTree], tuple[PyTree, History] | None]
    close: Callable[[], None]


def open_checkpoints(path: Path) -> Checkpoints:
    """Checkpoints below `path`; unfinished ones of a killed run are removed."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    manager = ocp.CheckpointManager(
        path.absolute(),
        options=ocp.CheckpointManagerOptions(
            max_to_keep=2, enable_async_checkpointing=False, cleanup_tmp_directories=True
        ),
    )

    def save(round_: int, state: PyTree, history: History) -> None:
        if round_ not in manager.all_steps():
            manager.save(
                round_,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), history=ocp.args.JsonSave(history._asdict())
                ),
            )

    def restore(like: PyTree) -> tuple[PyTree, History] | None:
        newest = manager.latest_step()
        if newest is None:
            return None
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        found = manager.restore(
            newest,
            args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes), history=ocp.args.JsonRestore()),
        )
        return found["state"], History(**found["history"])

    return Checkpoints(save, restore, manager.close)
