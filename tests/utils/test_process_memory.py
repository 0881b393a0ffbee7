"""The memory of this process, also where the system lists less than Linux does."""

from pathlib import Path

import pytest

from fdgjax.utils import process_memory
from fdgjax.utils.process_memory import available_bytes, peak_resident_bytes, total_bytes

MEBIBYTE = 2**20


def test_what_linux_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n")
    (tmp_path / "meminfo").write_text("MemTotal:       8192 kB\nMemAvailable:   4096 kB\n")
    monkeypatch.setattr(process_memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(process_memory, "MEMORY", tmp_path / "meminfo")
    assert peak_resident_bytes() == 2 * MEBIBYTE
    assert (available_bytes(), total_bytes()) == (4 * MEBIBYTE, 8 * MEBIBYTE)


@pytest.mark.parametrize("text", [None, "VmSize:\t  9999 kB\nVmRSS:\t   1024 kB\n"])
def test_a_sandbox_that_lists_no_peak(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "listed"
    if text:
        file.write_text(text)
    monkeypatch.setattr(process_memory, "STATUS", file)
    monkeypatch.setattr(process_memory, "MEMORY", file)
    # Of the process that runs the tests, which has loaded NumPy at least.
    assert 10 * MEBIBYTE < peak_resident_bytes() < 2**40
    assert available_bytes() is None
    assert total_bytes() is None
