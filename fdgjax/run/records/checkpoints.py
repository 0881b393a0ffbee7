"""Checkpoints of the whole state with the history so far, so that a resumed run equals an uninterrupted one.

A checkpoint is complete once it has `checksums.txt`, which holds the checksums of all its files and is written last.
"""

import contextlib
import functools
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax

from fdgjax.contract import PyTree
from fdgjax.distributed import broadcast, is_coordinator
from fdgjax.evaluation.metrics import Record
from fdgjax.utils.checksums import CHECKSUMS, Damaged, verify, write_checksums
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, sync

if TYPE_CHECKING:  # a sixth of all imports, which a run that has nothing to restore needs at its first save
    import orbax.checkpoint as ocp


class History(NamedTuple):
    """What a checkpoint holds besides the state: for each seed the records of its rounds, and the seconds so far."""

    records: list[list[Record]]
    seconds: float


class Checkpoints(NamedTuple):
    """save: writes `(round, state, history)`, flushed to disk when it returns; the newest two are kept. restore: the
    newest checkpoint as `(state, history)`, given a state of the same structure; None if there is none."""

    save: Callable[[int, PyTree, History], None]
    restore: Callable[[PyTree], tuple[PyTree, History] | None]
    close: Callable[[], None]


def open_checkpoints(path: Path, warn: Callable[[str], None]) -> Checkpoints:
    """The checkpoints below `path`, for the one run that owns them.

    Unfinished checkpoints of a killed run are removed before anything is saved or restored. Damaged ones are moved to
    the folder `damaged` beside `path`, with a call of `warn`, if there is an older checkpoint to continue from.

    Several processes save and restore together, in one folder that all of them see: through Orbax each process writes
    the shards that it holds, and process 0 does the rest.

    Raises:
      UserError: every checkpoint is damaged.
    """

    def tidy() -> None:
        set_aside(path, warn)
        make_folder(path)

    broadcast(tidy)  # from here on, the other processes may open the folder
    opened = contextlib.ExitStack()

    @functools.cache
    def manager() -> "ocp.CheckpointManager":
        return opened.enter_context(contextlib.closing(manage(path)))

    def save(round_: int, state: PyTree, history: History) -> None:
        try:
            held = manager()
            if broadcast(lambda: round_ in held.all_steps()):
                return
            with closed_loop_hidden():
                write_checkpoint(held, round_, state, history)
            if is_coordinator():
                sync(path)
                write_checksums(path / str(round_))
        # Orbax passes on the errors of several libraries; a full disk is a ValueError of one of them.
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"the checkpoint of round {round_} cannot be written to {path} ({reason}); expected a folder that can "
                "be written and free space; the same command continues from the one before"
            ) from error

    def restore(like: PyTree) -> tuple[PyTree, History] | None:
        newest = broadcast(lambda: next((int(folder.name) for folder in steps(path)), None))
        return None if newest is None else load_checkpoint(manager(), newest, like)

    return Checkpoints(save, restore, opened.close)


def newest_checkpoint(path: Path, like: PyTree, warn: Callable[[str], None]) -> tuple[PyTree, History] | None:
    """The newest complete checkpoint below `path` as `(state, history)`, for reading only: nothing is changed, as a run
    may still be writing there. None if there is no checkpoint.

    Raises:
      UserError: every checkpoint is damaged.
    """
    damage = {}
    for step in steps(path):
        if reason := damage_of(step):
            damage[step] = reason
            continue
        for passed, why in damage.items():
            warn(f"{passed} is {why}; reading the checkpoint of round {step.name}")
        with contextlib.closing(manage(path, read_only=True)) as manager:
            return load_checkpoint(manager, int(step.name), like)
    refuse_all(path, damage)
    return None


def manage(path: Path, read_only: bool = False) -> "ocp.CheckpointManager":
    """Orbax's manager of a folder of checkpoints."""
    import orbax.checkpoint as ocp

    # Orbax's threads log, with a traceback, the errors that they also raise.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options = ocp.CheckpointManagerOptions(
        max_to_keep=None if read_only else 2,
        enable_async_checkpointing=False,
        cleanup_tmp_directories=not read_only,
        read_only=read_only,
    )
    return ocp.CheckpointManager(path.absolute(), options=options)


@contextlib.contextmanager
def closed_loop_hidden() -> Iterator[None]:
    """Hides tracebacks of writes that report to Orbax's event loop after another write's error has closed it.

    They say no more than that error, and stay hidden after it, as some writes may still be under way.
    """
    shown = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            shown(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = shown


def write_checkpoint(manager: "ocp.CheckpointManager", round_: int, state: PyTree, history: History) -> None:
    """One checkpoint, without its checksums."""
    import orbax.checkpoint as ocp

    arguments = {"state": ocp.args.StandardSave(state), "history": ocp.args.JsonSave(history._asdict())}
    manager.save(round_, args=ocp.args.Composite(**arguments))


def load_checkpoint(manager: "ocp.CheckpointManager", step: int, like: PyTree) -> tuple[PyTree, History]:
    """One checkpoint, given a state of the same structure."""
    import orbax.checkpoint as ocp

    shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    arguments = {"state": ocp.args.StandardRestore(shapes), "history": ocp.args.JsonRestore()}
    found = manager.restore(step, args=ocp.args.Composite(**arguments))
    return found["state"], History(**found["history"])


def steps(path: Path) -> Iterator[Path]:
    """The folders of published checkpoints, newest first."""
    folders = [folder for folder in path.glob("*") if folder.name.isdecimal() and folder.is_dir()]
    yield from sorted(folders, key=lambda folder: -int(folder.name))


def damage_of(step: Path) -> str:
    """What is wrong with a published checkpoint; '' if every byte is as it was written."""
    if not (step / CHECKSUMS).exists():
        return f"unfinished (without {CHECKSUMS})"
    try:
        verify(step)
    except Damaged as error:
        return f"damaged ({error})"
    return ""


def set_aside(path: Path, warn: Callable[[str], None]) -> None:
    """Moves incomplete or damaged checkpoints newer than the newest intact one aside; see `open_checkpoints`."""
    damage: dict[Path, str] = {}
    for step in steps(path):
        if not (reason := damage_of(step)):
            break
        damage[step] = reason
    else:
        refuse_all(path, damage)
    for step, reason in damage.items():
        aside = path.parent / "damaged" / f"{step.name}-{uuid.uuid4().hex[:8]}"
        aside.parent.mkdir(exist_ok=True)
        os.replace(step, aside)
        sync(path)
        warn(f"the checkpoint of round {step.name} is {reason}: moved to {aside}; going on from the one before")


def refuse_all(path: Path, damage: dict[Path, str]) -> None:
    """Raises a `UserError` if any of the damaged checkpoints had been finished, as no intact one is left. If all are
    unfinished, the first save was cut short, and the run begins again."""
    finished = [reason for reason in damage.values() if not reason.startswith("unfinished")]
    if finished:
        raise UserError(
            f"every checkpoint in {path} is {finished[0]}; expected a whole one; restore the folder from a copy, or "
            "delete it and the same command begins again from round 1"
        )
