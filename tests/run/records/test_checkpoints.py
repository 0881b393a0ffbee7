"""A checkpoint is there completely or not at all: damage is noticed, and the last good one is used."""

import asyncio
import contextlib
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest
import tensorstore

from fdgjax.contract import PyTree
from fdgjax.run.records import Checkpoint, History, checkpoints, newest_checkpoint, open_checkpoints
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder
from tests.earlier import write_earlier_checksums
from tests.run.records.power_cut import watched

Saved = dict[str, jax.Array]


def state(round_: int) -> Saved:
    return {"w": jnp.arange(6.0).reshape(2, 3) + round_, "round": jnp.int32(round_)}


def history(round_: int) -> History:
    return History([[{"round": r} for r in range(1, round_ + 1)]], float(round_))


LIKE = state(0)


def save(path: Path, *rounds: int) -> Path:
    with contextlib.closing(open_checkpoints(path, pytest.fail)) as checkpoints:
        for round_ in rounds:
            checkpoints.save(round_, state(round_), history(round_))
    return path


def restored(path: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    with contextlib.closing(open_checkpoints(path, warn)) as checkpoints:
        return checkpoints.restore(LIKE)


def is_of_round(found: Checkpoint | None, round_: int) -> None:
    assert found is not None
    chex.assert_trees_all_equal(found[0], state(round_))
    assert found[1] == history(round_)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def files(path: Path, round_: int) -> list[Path]:
    return sorted(p for p in (path / str(round_)).rglob("*") if p.is_file() and p.stat().st_size)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [truncate, empty, flip, Path.unlink])
def test_damage_to_any_file_of_the_newest_is_noticed_and_the_one_before_used(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    good = save(tmp_path / "good", 2, 4)
    for number, file in enumerate(files(good, 4)):
        run = tmp_path / str(number)
        shutil.copytree(good, run / "checkpoints")
        damage(run / "checkpoints" / file.relative_to(good))
        said: list[str] = []
        is_of_round(newest_checkpoint(run / "checkpoints", LIKE, said.append), 2)
        assert (run / "checkpoints/4").is_dir(), "a reader moved another's checkpoint"
        is_of_round(restored(run / "checkpoints", said.append), 2)
        assert len(said) == 2, f"{file}: {said}"
        assert not any("\n" in line for line in said)
        assert len(list((run / "damaged").iterdir())) == 1, "what was damaged is gone"
    is_of_round(restored(save(tmp_path / "0/checkpoints", 4), pytest.fail), 4)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [truncate, empty, flip, Path.unlink])
def test_checkpoints_with_checksums_of_before_are_read_and_damage_to_them_is_noticed(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    good = save(tmp_path / "good", 2, 4)
    for round_ in (2, 4):
        write_earlier_checksums(good / str(round_))
    is_of_round(newest_checkpoint(good, LIKE, pytest.fail), 4)
    is_of_round(restored(good, pytest.fail), 4)
    said: list[str] = []
    for file in files(good, 4):
        whole = file.read_bytes()
        damage(file)
        is_of_round(newest_checkpoint(good, LIKE, said.append), 2)
        file.write_bytes(whole)
    assert len(said) == len(files(good, 4))


def test_all_that_are_damaged_are_set_aside(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoints", 2, 4)
    shutil.copytree(path / "4", path / "6")
    for round_ in (4, 6):
        flip(files(path, round_)[-1])
    said: list[str] = []
    is_of_round(restored(path, said.append), 2)
    assert [re.findall(r"of round (\d) is damaged", line) for line in said] == [["6"], ["4"]]
    assert sorted(folder.name[:2] for folder in (tmp_path / "damaged").iterdir()) == ["4-", "6-"]


def test_the_newest_up_to_a_round_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoints", 2, 4)
    for latest, wanted in ((2, 2), (3, 2), (4, 4), (5, 4)):
        is_of_round(newest_checkpoint(path, LIKE, pytest.fail, latest), wanted)
    assert newest_checkpoint(path, LIKE, pytest.fail, 1) is None


@pytest.mark.parametrize("moment", ["damage_of", "load_checkpoint"])
def test_those_that_a_run_deletes_while_they_are_read_are_passed_over(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, newer = save(tmp_path / "checkpoints", 2, 4), save(tmp_path / "newer", 6, 8)
    own, late, shown = getattr(checkpoints, moment), [True], list[str]()
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: shown.append(str(unraisable.exc_value)))

    def slow(*arguments: Any, **more: Any) -> Any:
        if late:
            late.clear()
            shutil.rmtree(path)
            newer.rename(path)
        return own(*arguments, **more)

    monkeypatch.setattr(checkpoints, moment, slow)
    is_of_round(newest_checkpoint(path, LIKE, pytest.fail), 8)
    if moment == "load_checkpoint":
        end_write_after_its_loop()  # as Orbax's other reads end
    assert shown == []


def test_with_none_left_one_line_says_so_and_nothing_is_moved(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoints", 2, 4)
    for round_ in (2, 4):
        flip(files(path, round_)[-1])
    for read in (restored, lambda path, warn: newest_checkpoint(path, LIKE, warn)):
        for _ in range(2):
            with pytest.raises(UserError, match=r"every checkpoint in .* is damaged .* begins again") as error:
                read(path, pytest.fail)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "other",
    [
        {"w": LIKE["w"]},
        {**LIKE, "v": LIKE["w"]},
        {**LIKE, "w": [LIKE["w"]]},
        {**LIKE, "w": jnp.zeros((3, 2))},
    ],
)
def test_a_state_of_another_structure_is_one_line_with_the_reason(tmp_path: Path, other: PyTree) -> None:
    path = save(tmp_path / "checkpoints", 2)
    with pytest.raises(UserError, match=r"another structure \([^)]*\w{4}") as error:
        newest_checkpoint(path, other, pytest.fail)
    assert "\n" not in str(error.value)
    is_of_round(restored(path, pytest.fail), 2)


def test_a_first_save_cut_short_begins_the_run_again(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoints", 2)
    (path / "2/checksums.txt").unlink()
    said: list[str] = []
    assert restored(path, said.append) is None
    assert "unfinished" in said[0]


@pytest.mark.slow
def test_a_power_cut_at_any_moment_leaves_the_last_that_was_saved(tmp_path: Path) -> None:
    saved = []
    with watched(tmp_path) as disk:
        make_folder(tmp_path / "run")
        with contextlib.closing(open_checkpoints(tmp_path / "run/checkpoints", pytest.fail)) as checkpoints:
            for round_ in (1, 2, 3, 4):
                checkpoints.save(round_, state(round_), history(round_))
                saved.append(len(disk.moments) - 1)
    assert len(disk.moments) > 20
    for moment in range(len(disk.moments)):
        left = disk.after(moment, tmp_path / f"cut_{moment}") / "run/checkpoints"
        newest = sum(moment >= done for done in saved)
        found = restored(left, lambda line: None) if left.exists() else None
        if found is None:
            assert newest == 0, f"after sync {moment} round {newest} is lost"
        else:
            assert int(found[0]["round"]) >= newest
            is_of_round(found, int(found[0]["round"]))


def test_a_state_is_not_written_twice_and_two_are_kept(tmp_path: Path) -> None:
    path = save(save(tmp_path / "checkpoints", 1, 2, 3), 3)
    assert sorted(folder.name for folder in path.iterdir() if folder.is_dir()) == ["2", "3"]


def test_a_disk_that_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "some file")

    shown: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: shown.append(str(unraisable.exc_value)))
    with contextlib.closing(open_checkpoints(tmp_path / "checkpoints", pytest.fail)) as checkpoints:
        monkeypatch.setattr("fdgjax.run.records.checkpoints.write_checkpoint", full)
        with pytest.raises(UserError, match=r"round 1 cannot be written .*No space left.*the same command") as error:
            checkpoints.save(1, state(1), history(1))
    assert "\n" not in str(error.value)
    # What Orbax's other writes report afterwards, from their threads.
    logging.getLogger("asyncio").error("Future exception was never retrieved")
    end_write_after_its_loop()
    assert caplog.messages == []
    assert shown == []


@pytest.mark.parametrize(("before", "said"), [((), "begins again"), ((1,), "continues from round 1")])
def test_a_disk_that_is_full_for_checksums_alone_leaves_nothing_to_be_moved_aside(
    before: tuple[int, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "checkpoints", *before)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "some file")

    with monkeypatch.context() as patched, contextlib.closing(open_checkpoints(path, pytest.fail)) as checkpoints:
        patched.setattr("fdgjax.run.records.checkpoints.write_checksums", full)
        with pytest.raises(UserError, match=rf"round 2 cannot be written .*No space left.*the same command {said}$"):
            checkpoints.save(2, state(2), history(2))
    assert [folder.name for folder in path.iterdir() if folder.is_dir()] == [str(round_) for round_ in before]
    save(path, 2)
    assert not (tmp_path / "damaged").exists()


def end_write_after_its_loop() -> None:
    """One of TensorStore's writes that ends once the event loop that waits for it is closed."""
    pair: Any = tensorstore.Promise.new()
    promise, future = pair

    async def wait() -> None:
        await future

    loop = asyncio.new_event_loop()
    task = loop.create_task(wait())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    promise.set_result(None)
    assert not task.done()


def test_a_state_that_cannot_be_saved_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    like = {**LIKE, "queue": {"rows": jnp.zeros((0, 3))}}
    with contextlib.closing(open_checkpoints(tmp_path / "checkpoints", pytest.fail)) as checkpoints:
        with pytest.raises(
            UserError, match=r"made float32 \[0, 3\] at queue.rows, which has no number and cannot be saved"
        ):
            checkpoints.restore(like)
        with pytest.raises(UserError, match="cannot be written"):
            checkpoints.save(1, like, history(1))
