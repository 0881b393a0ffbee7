"""A folder belongs to one experiment and, while it trains, to one process; what is damaged there is noticed."""

import dataclasses
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from fdgjax.config import Config, from_plain, make_config, read_config
from fdgjax.run.records import (
    Workdir,
    check_place,
    finished,
    open_workdir,
    own_workdir,
    read_config_file,
    read_summary,
    write_summary,
)
from fdgjax.run.records.workdir import seed_workdir
from fdgjax.run.reopen import config_of
from fdgjax.sweeps.status import hold
from fdgjax.utils.checksums import CHECKSUM, Damaged, read_checked_json, write_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import lock

HOLD = (
    "import sys; from pathlib import Path; from fdgjax.utils.files import lock\nwith lock(Path(sys.argv[1])) as mine: "
)


@pytest.fixture
def config() -> Config:
    return read_config(make_config("fedavg", "rotated_digits"))


def test_a_second_process_is_turned_away_and_nothing_is_written(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with own_workdir(path, config, pytest.fail):
        before = {file: file.read_bytes() for file in path.rglob("*")}
        with (
            pytest.raises(UserError, match=r"is in use by process \d+ on .*; expected a folder in which") as error,
            own_workdir(path, config, pytest.fail),
        ):
            pytest.fail("two own it")
        assert "\n" not in str(error.value)
        assert {file: file.read_bytes() for file in path.rglob("*")} == before
    with own_workdir(path, config, pytest.fail) as again:
        assert again.config.exists()


def test_who_looks_for_a_moment_whether_a_run_goes_on_turns_none_away(config: Config, tmp_path: Path) -> None:
    looking, path = threading.Event(), tmp_path / "run"
    path.mkdir()

    def look() -> None:
        with lock(Workdir(path).lock) as mine:
            assert mine
            looking.set()
            time.sleep(0.1)

    with ThreadPoolExecutor(1) as other:
        looked = other.submit(look)
        looking.wait()
        with own_workdir(path, config, pytest.fail) as own:
            assert own.config.exists()
        looked.result()


def test_a_folder_that_another_process_begins_during_the_look_is_a_runs(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, listed = tmp_path / "run", Path.iterdir

    def late(folder: Path) -> Iterator[Path]:
        monkeypatch.undo()
        open_workdir(path, config)
        return listed(folder)

    path.mkdir()
    monkeypatch.setattr(Path, "iterdir", late)
    check_place(path)
    assert Workdir(path).config.exists(), "it was begun in between"


@pytest.mark.parametrize(
    ("name", "split", "place"),
    [
        ("folder", "data", "new"),
        ("pacs", "data/lists/random", "new/lists/random"),
        ("pacs", "lists", "lists"),
        ("table", "data", "data"),
    ],
)
def test_lists_of_images_move_with_the_data_in_whose_folder_they_are(
    name: str, split: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other lists are another experiment, the same ones elsewhere, too: no cell of a sweep is taken for another."""
    monkeypatch.chdir(tmp_path)
    config = read_config(make_config("fedavg", name))
    where = dataclasses.replace(config.data, dir="data", split=split)
    config = dataclasses.replace(config, data=where)
    open_workdir(tmp_path / "run", config)
    moved = config_of(tmp_path / "run", "new")
    assert moved.data == dataclasses.replace(where, dir="new", split=place)
    open_workdir(tmp_path / "run", moved)
    other = dataclasses.replace(moved, data=dataclasses.replace(moved.data, split=f"{place}/other"))
    with pytest.raises(UserError, match=r"holds another experiment: config\.data\.split is"):
        open_workdir(tmp_path / "run", other)


def test_the_lock_of_a_killed_process_does_not_block(config: Config, tmp_path: Path) -> None:
    open_workdir(tmp_path / "run", config)
    held = HOLD + "print(mine, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", held, str(tmp_path / "run/.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with pytest.raises(UserError, match="is in use"), own_workdir(tmp_path / "run", config, pytest.fail):
            pytest.fail("two own it")
        process.kill()
        process.wait()
    with own_workdir(tmp_path / "run", config, pytest.fail) as workdir:
        assert workdir.config.exists()


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_lock_that_cannot_be_written_is_no_file_system_without_locks(
    reason: int, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileLock) -> None:
        raise OSError(reason, os.strerror(reason), self.lock_file)

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.raises(OSError, match=os.strerror(reason)), own_workdir(tmp_path / "run", config, pytest.fail):
        pytest.fail("it is owned")
    with pytest.raises(OSError, match=os.strerror(reason)), hold(tmp_path, "cell"):
        pytest.fail("it is held")


def test_a_file_system_without_locks_is_said(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    said: list[str] = []
    with own_workdir(tmp_path / "run", config, said.append) as workdir:
        assert workdir.config.exists()
    assert "without locks (" in said[0]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"config": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_config_is_refused_in_one_line(damage: bytes, config: Config, tmp_path: Path) -> None:
    workdir = open_workdir(tmp_path / "run", config)
    workdir.config.write_bytes(damage)
    with pytest.raises(Damaged, match=r"config.json is damaged .*; expected .*restore it from a copy") as error:
        open_workdir(tmp_path / "run", config)
    assert "\n" not in str(error.value)


def test_a_run_begun_before_a_key_existed_goes_on_with_its_default(config: Config, tmp_path: Path) -> None:
    workdir = open_workdir(tmp_path / "run", config)
    content = read_checked_json(workdir.config)
    for section, key in (("", "dtype"), ("data", "streaming"), ("method", "client_clip")):
        del (content["config"][section] if section else content["config"])[key]
    write_checked_json(workdir.config, {key: value for key, value in content.items() if key != CHECKSUM})
    assert from_plain(read_config_file(workdir)["config"]) == config
    open_workdir(workdir.path, config)
    with pytest.raises(UserError, match=r"config\.dtype is float32 there and bfloat16 here"):
        open_workdir(workdir.path, dataclasses.replace(config, dtype="bfloat16"))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("", "figures_resamples", 7),
        ("adaptation", "support", 5),
        ("attack", "clients", 3),
        ("defence", "hostile", 2),
    ],
)
def test_a_key_that_had_no_effect_when_it_was_set_keeps_no_run_from_going_on(
    section: str, key: str, value: object, config: Config, tmp_path: Path
) -> None:
    workdir = open_workdir(tmp_path / "run", config)
    content = read_checked_json(workdir.config)
    (content["config"][section] if section else content["config"])[key] = value
    with pytest.raises(UserError, match=f"{key} got {value}, but .* does not use it"):
        from_plain(content["config"])
    write_checked_json(workdir.config, content)
    assert from_plain(read_config_file(workdir)["config"]) == config
    open_workdir(workdir.path, config)


def test_a_key_that_has_an_effect_stays(config: Config, tmp_path: Path) -> None:
    other = dataclasses.replace(config, adaptation=dataclasses.replace(config.adaptation, kind="t3a", support=5))
    workdir = open_workdir(tmp_path / "run", other)
    assert from_plain(read_config_file(workdir)["config"]) == other
    with pytest.raises(UserError, match=r"config\.adaptation\.kind is t3a there and own here"):
        open_workdir(workdir.path, config)


def test_a_summary_that_is_not_whole_is_no_end(tmp_path: Path) -> None:
    said: list[str] = []
    assert finished(Workdir(tmp_path), said.append) == {}
    write_checked_json(tmp_path / "summary.json", {"id_accuracy": 0.5})
    assert finished(Workdir(tmp_path), said.append) == {"id_accuracy": 0.5}
    assert not said
    (tmp_path / "summary.json").write_text('{"id_accuracy": 0.9}')
    assert finished(Workdir(tmp_path), said.append) == {}
    assert "not taken as finished" in said[0]


@pytest.mark.parametrize("seeds", [(), (3, 4)])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text('{"round": 2}\n')])
def test_a_run_without_its_metrics_is_not_finished(
    seeds: tuple[int, ...], damage: Callable[[Path], None], tmp_path: Path
) -> None:
    run, said = Workdir(tmp_path), list[str]()
    folders = [seed_workdir(run, seed) for seed in seeds] or [run]
    for folder in folders:
        folder.path.mkdir(exist_ok=True)
        folder.metrics.write_text('{"round": 1}\n')
        write_summary(folder, {"id_accuracy": 0.5})
    if seeds:
        write_checked_json(run.summary, {"id_accuracy": 0.5, "seeds": list(seeds)})
    assert finished(run, said.append)["id_accuracy"] == 0.5
    assert not said
    damage(folders[-1].metrics)
    assert finished(run, said.append) == {}
    assert str(folders[-1].metrics) in said[0]
    with pytest.raises(Damaged, match="the command that trained the run restores it"):
        read_summary(folders[-1])
