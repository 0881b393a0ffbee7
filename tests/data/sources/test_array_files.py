"""Arrays in files: what NumPy did not save, or is damaged, and two files of one domain are refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.data.sources.array_files import array_folder, read_inputs
from fdgjax.utils.errors import UserError

INPUTS = np.random.default_rng(0).normal(size=(6, 4))


def saved(file: Path, save: Callable[..., Any] = np.savez) -> Path:
    with open(file, "wb") as stream:
        save(stream, inputs=INPUTS, labels=np.arange(6) % 2)
    return file


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_changed_byte_is_noticed_in_one_line_or_changes_nothing(save: Callable[..., Any], tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", save)
    whole, refusals = file.read_bytes(), list[str]()
    for place in range(0, len(whole), 5):
        for flipped in (0x01, 0x40, 0xFF):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ flipped]) + whole[place + 1 :])
            try:
                np.testing.assert_array_equal(read_inputs(file), INPUTS)
            except UserError as error:
                refusals.append(str(error))
    assert refusals
    assert not any("\n" in line for line in refusals)


def test_a_cut_header_of_an_array_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, INPUTS)
    file.write_bytes(file.read_bytes().replace(b"}", b" ", 1))
    with pytest.raises(UserError, match=r"cannot read .*; expected arrays that NumPy saved"):
        read_inputs(file)


def test_groups_and_splits_are_read_where_a_file_has_them(tmp_path: Path) -> None:
    groups, splits, labels = np.array(list("aabbcc")), ["train"] * 4 + ["val", "test"], np.arange(6) % 2
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", inputs=INPUTS, labels=labels, groups=groups, splits=splits, other=labels)
    found = array_folder(str(tmp_path))
    assert found.groups is not None
    assert found.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found.splits is not None
    assert [np.flatnonzero(part).tolist() for part in found.splits] == [[0, 1, 2, 3, 6, 7, 8, 9], [4, 10], [5, 11]]


def test_two_files_of_one_domain_are_refused(tmp_path: Path) -> None:
    for name in ("a.npz", "a.NPZ", "b.npz"):
        saved(tmp_path / name)
    with pytest.raises(UserError, match="are files of one domain; expected one file for each"):
        array_folder(str(tmp_path))
