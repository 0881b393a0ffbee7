"""A damaged cache is noticed, whatever the damage, and made again; what is published is on the disk."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fdgjax.data.sources import cache as caching
from fdgjax.data.sources.cache import publishing, read_arrays, remove_damaged
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import load_data
from fdgjax.utils.checksums import CHECKSUMS, verify, write_checksums
from fdgjax.utils.errors import UserError
from tests.data.at_once import answers_at_once

FILES = ("images.npy", "labels.npy", "domains.npy", "names.json", CHECKSUMS)


def flip(path: Path, place: int = 0, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "first bit": flip,
    "bit in the middle": lambda path: flip(path, path.stat().st_size // 2, 3),
    "last bit": lambda path: flip(path, -1, 7),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "missing": Path.unlink,
    "a folder": make_a_folder,
}


class Made:
    """The tree's data, from a cache that a test may spoil."""

    def __init__(self, tree: Path, cache: Path) -> None:
        self.tree, self.cache = tree, cache
        self.whole = tuple(np.array(part) for part in self.load()[:3])
        (self.arrays,) = cache.glob("*/4px")

    def load(self, size: int = 4) -> Domains:
        return load_data("folder", data_dir=str(self.tree), image_size=size, cache_dir=str(self.cache))

    def is_made_again(self, caplog: pytest.LogCaptureFixture) -> str:
        """The line that says so; the load after it says nothing."""
        caplog.clear()
        for part, wanted in zip(self.load()[:3], self.whole, strict=True):
            np.testing.assert_array_equal(part, wanted)
        (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert said.isprintable()
        caplog.clear()
        self.load()
        assert not caplog.records
        assert not list(self.cache.glob("**/.unfinished*"))
        return said


@pytest.fixture
def made(tree: Path, cache: Path) -> Made:
    return Made(tree, cache)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_cache_is_made_again(how: str, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    for name in FILES:
        DAMAGE[how](made.arrays / name)
        said = made.is_made_again(caplog)
        assert said.startswith(f"the cache {made.arrays} is damaged ({name}")


def written_again(path: Path, values: np.ndarray) -> None:
    """A cache whose checksums are right, and its values wrong."""
    np.save(path, values)
    write_checksums(path.parent)


@pytest.mark.parametrize(
    ("name", "spoilt", "said"),
    [
        ("labels", lambda a: a + 1, "labels.npy has 1 to 3 for 3 names"),
        ("labels", lambda a: a - 1, "labels.npy has -1 to 1 for 3 names"),
        ("labels", lambda a: a[:-1], "labels.npy has int32 [11] for 12 images"),
        ("labels", lambda a: a.astype(np.int64), "labels.npy has int64 [12]"),
        ("domains", lambda a: a + 1, "domains.npy has 1 to 2 for 2 names"),
        ("domains", lambda a: a[:, None], "domains.npy has int32 [12, 1]"),
        ("images", lambda a: a[:, :3], "images.npy has uint8 [12, 3, 4, 3]"),
        ("images", lambda a: a[0], "images.npy has uint8 [4, 4, 3]"),
        ("images", lambda a: a.astype(np.float32), "images.npy has float32"),
    ],
)
def test_arrays_that_are_no_data_set(
    name: str, spoilt: Callable, said: str, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    path = made.arrays / f"{name}.npy"
    written_again(path, spoilt(np.load(path)))
    assert f"({said}" in made.is_made_again(caplog)


def test_damaged_records_are_made_again(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    (records,) = made.cache.glob("*/records")
    larger = np.array(made.load(6).inputs)
    for path in [path for path in records.rglob("*") if path.is_file()]:
        shutil.rmtree(records.parent / "6px")
        flip(path, path.stat().st_size // 2)
        caplog.clear()
        np.testing.assert_array_equal(made.load(6).inputs, larger)
        (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert said.startswith(f"the cache {records} is damaged (")


def test_a_disk_that_damages_all_it_is_given_is_reported(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_badly(folder: Path) -> None:
        write_checksums(folder)
        if (folder / "labels.npy").exists():
            flip(folder / "labels.npy", -1)

    monkeypatch.setattr(caching, "write_checksums", written_badly)
    with pytest.raises(UserError, match="damaged however often it is written; expected"):
        load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(cache))


def test_a_damaged_cache_that_cannot_be_removed_is_reported(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(made.arrays / "labels.npy")

    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(caching.os, "rename", refuse)
    with pytest.raises(UserError, match=r"is damaged and cannot be removed .*Read-only file system"):
        made.load()


@pytest.mark.parametrize("name", ["a\nb \u202e %s $x é", "n" * 255])
def test_a_cache_folder_of_any_name_is_used(name: str, tree: Path, tmp_path: Path) -> None:
    assert len(load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(tmp_path / name)).labels) == 12


@pytest.mark.parametrize(
    ("name", "said"), [("\udcff", "in UTF-8"), ("\0", "in UTF-8"), ("n" * 300, "File name too long")]
)
def test_an_impossible_cache_folder_is_named(name: str, said: str, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as error:
        load_data("folder", data_dir=str(tree), image_size=4, cache_dir=str(tmp_path / name))
    assert str(error.value).isprintable()
    assert "cache_dir" in str(error.value)


def test_a_cache_mended_by_another_process_stays(made: Made) -> None:
    before = made.arrays.stat().st_ino
    remove_damaged(made.arrays, read_arrays)
    assert made.arrays.stat().st_ino == before
    flip(made.arrays / "labels.npy")
    remove_damaged(made.arrays, read_arrays)
    assert not made.arrays.exists()
    remove_damaged(made.arrays, read_arrays)


@pytest.mark.slow
def test_processes_that_find_the_damage_at_once_agree(made: Made) -> None:
    script = (
        "import sys, logging, numpy; from fdgjax.data.sources.loading import load_data;"
        "import fdgjax.data.sources.array_records;"
        "logging.disable(); print('ready', flush=True); sys.stdin.read(1);"
        f"d = load_data('folder', data_dir={str(made.tree)!r}, image_size=4, cache_dir={str(made.cache)!r});"
        "print(int(d.inputs.sum(dtype=numpy.int64)), d.inputs.shape)"
    )
    flip(made.arrays / "images.npy", -1)
    answers = answers_at_once(script, 3)
    total = int(made.whole[0].sum(dtype=np.int64))
    assert answers == [(f"{total} (12, 4, 4, 3)\n", "")] * 3
    verify(made.arrays)


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that notes what is synced and what is renamed."""
    log: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def noting_sync(file: int) -> None:
        log.append(("synced", os.path.basename(os.readlink(f"/proc/self/fd/{file}"))))
        sync(file)

    def noting_replace(source: Path, target: Path) -> None:
        log.append(("named", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_replace)
    with publishing(tmp_path / "set" / "final") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a").write_text("a")
        (folder / "b").write_text("b")
    at = log.index(("named", "final"))
    assert {name for what, name in log[:at] if not name.startswith(".")} == {"a", "inner", "b", CHECKSUMS, "final"}
    # The checksums are named after all else is there, and before they are there themselves.
    assert log.index(("named", CHECKSUMS)) > max(log.index(("synced", name)) for name in ("a", "b", "inner"))
    assert log[at + 1 :] == [("synced", "set"), ("synced", tmp_path.name)]
    assert log[at - 1] == ("synced", "final")
    verify(tmp_path / "set" / "final")
