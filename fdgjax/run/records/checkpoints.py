"""Checkpoints of the whole state with the history so far, so that a resumed run equals an uninterrupted one.

A checkpoint is complete once it has `checksums.txt`, which holds the checksums of all its files and is written last.
"""

import contextlib
import functools
import logging
import math
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax

from fdgjax.contract import PyTree
from fdgjax.distributed import broadcast, is_coordinator
from fdgjax.evaluation.metrics import Record
from fdgjax.utils.checksums import CHECKSUMS, Damaged, verify, write_checksums
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, sync
from fdgjax.utils.variables import dtype_and_shape

if TYPE_CHECKING:  # a sixth of all imports, which a run that has nothing to restore needs at its first save
    import orbax.checkpoint as ocp


SELECTED = "selected"
"""The name of the selected state in a checkpoint's folder."""


TRIES = 10
"""How often the newest checkpoint is looked for, where each that was found is deleted while it is read."""


LONGEST = 200
"""The maximum number of characters shown of Orbax's reason."""


class History(NamedTuple):
    """What a checkpoint holds besides the state: for each seed the records of its rounds, and the seconds so far."""

    records: list[list[Record]]
    seconds: float


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    selected: the state of the round that the run's selection rule has chosen so far (`fdgjax.run.selected`), of the
      structure of `state`, on the host; None if no such state is kept.
    """

    state: PyTree
    history: History
    selected: PyTree | None = None


class Save(Protocol):
    """Writes a checkpoint."""

    def __call__(self, round_: int, state: PyTree, history: History, selected: PyTree | None = None) -> None:
        """Writes the checkpoint of a round, flushed to disk when this returns; the fields of a `Checkpoint`."""
        ...


class Checkpoints(NamedTuple):
    """save: writes a checkpoint; the newest two are kept. restore: the newest checkpoint, given a state of the same
    structure; None if there is none."""

    save: Save
    restore: Callable[[PyTree], Checkpoint | None]
    close: Callable[[], None]


def open_checkpoints(path: Path, warn: Callable[[str], None]) -> Checkpoints:
    """The checkpoints below `path`, for the one run that owns them.

    Before anything is saved or restored, unfinished and damaged checkpoints are moved to the folder `damaged` beside
    `path`, with a call of `warn`, if there is an older one to continue from, or if all are unfinished.

    Several processes save and restore together, in one folder that all of them see: through Orbax each process writes
    the shards that it holds, and process 0 does the rest.

    Raises:
      UserError: every checkpoint is damaged; when the first is restored, or would be, a state that cannot be saved.
    """

    def tidy() -> None:
        set_aside(path, warn)
        make_folder(path)

    broadcast(tidy)  # from here on, the other processes may open the folder
    opened = contextlib.ExitStack()

    @functools.cache
    def manager() -> "ocp.CheckpointManager":
        return opened.enter_context(contextlib.closing(manage(path)))

    def save(round_: int, state: PyTree, history: History, selected: PyTree | None = None) -> None:
        try:
            held = manager()
            if broadcast(lambda: round_ in held.all_steps()):
                return
            with closed_loop_hidden():
                write_checkpoint(held, round_, Checkpoint(state, history, selected))
            if is_coordinator():
                sync(path)
                write_checksums(path / str(round_))
        # Orbax passes on the errors of several libraries; a full disk is a ValueError of one of them.
        except Exception as error:
            reason = str(error).partition("\n")[0]
            if is_coordinator() and not (path / str(round_) / CHECKSUMS).exists():
                # Of a full disk: what is left of it takes space, and would be moved aside as unfinished.
                shutil.rmtree(path / str(round_), ignore_errors=True)
            before = next((f"continues from round {step.name}" for step in steps(path)), "begins again")
            raise UserError(
                f"the checkpoint of round {round_} cannot be written to {path} ({reason}); expected a folder that can "
                f"be written and free space; the same command {before}"
            ) from error

    def restore(like: PyTree) -> Checkpoint | None:
        check_savable(like)
        newest = broadcast(lambda: next(((int(folder.name), has_selected(folder)) for folder in steps(path)), None))
        return None if newest is None else load_checkpoint(manager(), newest[0], like, selected=newest[1])

    return Checkpoints(save, restore, opened.close)


def check_savable(like: PyTree) -> None:
    """Raises a `UserError` for a state with an array of no numbers, which Orbax does not save."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        if not math.prod(leaf.shape):
            place = jax.tree_util.keystr(path, simple=True, separator=".")
            raise UserError(
                f"the method's init made {dtype_and_shape(leaf)} at {place}, which has no number and cannot be saved "
                "in a checkpoint; expected at least one number, or None; without a workdir it trains as it is"
            )


def newest_checkpoint(
    path: Path, like: PyTree, warn: Callable[[str], None], latest: int | None = None
) -> Checkpoint | None:
    """The newest complete checkpoint below `path`, for reading only: nothing is changed, as a run may still be writing
    there. None if there is no checkpoint.

    Of a run that saves two more meanwhile, the checkpoint that is being read is gone: then the newest is read anew.

    Args:
      path: the folder of checkpoints.
      like: a state of the same structure.
      warn: called with a message if a damaged checkpoint is passed over.
      latest: checkpoints of later rounds are ignored; None for all.

    Raises:
      UserError: every checkpoint is damaged.
    """
    for left in reversed(range(TRIES)):
        listed = list(steps(path))
        try:
            found = newest_of(path, listed, like, warn, latest)
        except (UserError, OSError):
            if not left or list(steps(path)) == listed:
                raise
        else:
            if found is not None or list(steps(path)) == listed:
                return found
    return None


def newest_of(
    path: Path, listed: Sequence[Path], like: PyTree, warn: Callable[[str], None], latest: int | None
) -> Checkpoint | None:
    """`newest_checkpoint` of those that were listed; raises an `OSError`, too, if one is deleted while it is read."""
    damage = {}
    for step in listed:
        if latest is not None and int(step.name) > latest:
            continue
        if reason := damage_of(step):
            damage[step] = reason
            continue
        for passed, why in damage.items():
            warn(f"{passed} is {why}; reading the checkpoint of round {step.name}")
        with closed_loop_hidden(), contextlib.closing(manage(path, read_only=True)) as manager:
            return load_checkpoint(manager, int(step.name), like, selected=has_selected(step))
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
    """Hides tracebacks of writes, or reads, that report to Orbax's event loop after another one's error has closed it.

    They say no more than that error, and stay hidden after it, as some may still be under way.
    """
    shown = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            shown(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = shown


def write_checkpoint(manager: "ocp.CheckpointManager", round_: int, content: Checkpoint) -> None:
    """One checkpoint, without its checksums."""
    import orbax.checkpoint as ocp

    arguments: dict[str, Any] = {
        "state": ocp.args.StandardSave(content.state),
        "history": ocp.args.JsonSave(content.history._asdict()),
        **({} if content.selected is None else {SELECTED: ocp.args.StandardSave(content.selected)}),
    }
    manager.save(round_, args=ocp.args.Composite(**arguments))


def load_checkpoint(manager: "ocp.CheckpointManager", step: int, like: PyTree, *, selected: bool) -> Checkpoint:
    """One checkpoint, given a state of the same structure; `selected`: whether it holds a selected state.

    Raises:
      UserError: the checkpoint holds a state of another structure, as another version of the package may have written.
    """
    import orbax.checkpoint as ocp

    shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    arguments: dict[str, Any] = {"state": ocp.args.StandardRestore(shapes), "history": ocp.args.JsonRestore()}
    if selected:
        arguments[SELECTED] = ocp.args.StandardRestore(shapes)
    try:
        found = manager.restore(step, args=ocp.args.Composite(**arguments))
    except (ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).partition("\nIf")[0].split())[:LONGEST]
        raise UserError(
            f"the checkpoint {manager.directory}/{step} holds a state of another structure ({reason}); expected this "
            "version's; continue with the version of fdgjax that wrote it, or choose another --workdir"
        ) from error
    return Checkpoint(
        found["state"], History(**found["history"]), jax.device_get(found[SELECTED]) if selected else None
    )


def has_selected(step: Path) -> bool:
    """Whether the checkpoint in a folder holds a selected state."""
    return (step / SELECTED).is_dir()


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
        warn(f"the checkpoint of round {step.name} is {reason}: moved to {aside}")


def refuse_all(path: Path, damage: dict[Path, str]) -> None:
    """Raises a `UserError` if any of the damaged checkpoints had been finished, as no intact one is left. If all are
    unfinished, the first save was cut short, and the run begins again."""
    finished = [reason for reason in damage.values() if not reason.startswith("unfinished")]
    if finished:
        raise UserError(
            f"every checkpoint in {path} is {finished[0]}; expected a whole one; restore the folder from a copy, or "
            "delete it and the same command begins again from round 1"
        )
