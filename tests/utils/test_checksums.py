"""Checksums of folders and of JSON: no flipped bit goes unnoticed, and other programs read them."""

import contextlib
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdgjax.utils.checksums import (
    CHECKSUMS,
    Damaged,
    read_checked_json,
    sha256,
    tree_sha256,
    verify,
    write_checked_json,
    write_checksums,
)
from tests.earlier import write_earlier_checksums


def flip(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)


@settings(deadline=None, max_examples=60)
@given(
    write=st.sampled_from([write_checksums, write_earlier_checksums]),
    content=st.binary(min_size=1, max_size=200),
    place=st.integers(0),
    bit=st.integers(0, 7),
)
def test_every_flipped_bit_of_a_folder_is_noticed(
    write: Callable[[Path], None],
    content: bytes,
    place: int,
    bit: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "a name").write_bytes(content)
    (folder / "empty").write_bytes(b"")
    write(folder)
    verify(folder)
    for name in ("a name", CHECKSUMS):
        flip(folder / name, place, bit)
        with pytest.raises(Damaged, match=name):
            verify(folder)
        flip(folder / name, place, bit)
    assert verify(folder) == folder


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_checksums_cut_at_a_line_are_noticed(lines: int, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    write_checksums(tmp_path)
    path = tmp_path / CHECKSUMS
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
    with pytest.raises(Damaged, match=CHECKSUMS):
        verify(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Names of which paths and their bytes have other orders, and a file of more than one block of 16 MiB."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/blocks").write_bytes(bytes(range(256)) * (2**16 + 1))
    (tmp_path / "a-name").write_bytes(b"content")
    (tmp_path / "empty").write_bytes(b"")
    return tmp_path


def test_other_programs_verify_a_folder(folder: Path) -> None:
    write_checksums(folder)
    command = ["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS]
    assert subprocess.run(command, cwd=folder, check=False).returncode == 0
    flip(folder / "a-name", 0, 0)
    assert subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 1


def test_a_folder_has_one_checksum_whether_or_not_its_files_have_theirs(folder: Path) -> None:
    names = ["a-name", "a/blocks", "empty"]
    printed = subprocess.run(["sha256sum", *names], cwd=folder, capture_output=True, check=True).stdout
    wanted = hashlib.sha256(printed).hexdigest()
    assert tree_sha256(folder) == wanted
    write_checksums(folder)
    assert tree_sha256(folder) == wanted
    assert (folder / CHECKSUMS).read_bytes() == printed + f"# {wanted}\n".encode()
    assert sha256(folder / "empty") == hashlib.sha256().hexdigest()


def test_a_folder_of_the_first_runs_of_this_version_is_verified(folder: Path) -> None:
    """The text is what was written then."""
    (folder / CHECKSUMS).write_text("e02e1388 16777472 a/blocks\na0d5c79c 7 a-name\n00000000 0 empty\n7705ff4e\n")
    verify(folder)
    for place in (0, -1):
        flip(folder / "a/blocks", place, 0)
        with pytest.raises(Damaged, match="a/blocks"):
            verify(folder)
        flip(folder / "a/blocks", place, 0)


@pytest.mark.slow
def test_every_flipped_bit_of_json_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    content = {"id_accuracy": 0.1 + 0.2, "names": ["é", "a"], "nan": float("inf"), "empty": {}}
    write_checked_json(file, content)
    assert read_checked_json(file) == content
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            file.write_bytes(flipped)
            # White space may change: the content is the same then.
            with contextlib.suppress(Damaged):
                assert read_checked_json(file) == content
