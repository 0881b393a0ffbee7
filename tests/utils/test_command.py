"""A command's door: what the machine refuses is one line and a status, whatever became of its streams."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdgjax.utils.command import CLOSED, MISTAKE, command
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import append_line, write_bytes

PRINTS = (
    "import sys; from fdgjax.utils.command import command; "
    "sys.exit(command(lambda argv: print(argv[1]) or 0)(['', {text!a}]))"
)


def printing(text: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """A process whose command prints the text."""
    return subprocess.run(
        [sys.executable, "-c", PRINTS.format(text=text)], text=True, stderr=subprocess.PIPE, check=False, **streams
    )


def raising(error: BaseException) -> Callable[[Any], int]:
    def main(argv: Any) -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("got a\nb; expected c"), "fdgjax: got a\\nb; expected c\n"),
        (OSError(28, "No space left on device", "/full/file"), "the system refuses with /full/file (No space left"),
        (NotADirectoryError(20, "Not a directory", "/a/b"), "refuses with /a/b (Not a directory)"),
        (MemoryError("9 TiB"), "out of memory (9 TiB)"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore"), "out of memory (RESOURCE_EXHAUSTED: Out of memory)"),
    ],
)
def test_mistakes_and_refusals_are_one_line(
    error: BaseException, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(raising(error))([]) == MISTAKE
    text = capsys.readouterr().err
    assert said in text
    assert text.startswith("fdgjax: ")
    assert text.count("\n") == 1


def test_a_defect_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        command(raising(ZeroDivisionError()))([])
    with pytest.raises(RuntimeError, match="another"):
        command(raising(RuntimeError("another")))([])


@pytest.mark.parametrize("status", [0, 1, 143])
def test_a_status_is_passed_on(status: int) -> None:
    assert command(lambda argv: status)([]) == status


def test_a_reader_that_has_gone_ends_the_command_as_the_shell_expects() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = printing("x", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (CLOSED, "")
    assert CLOSED == 128 + signal.SIGPIPE


@pytest.mark.parametrize("write", [lambda file: write_bytes(file, b"x"), lambda file: append_line(file, {"round": 1})])
def test_a_file_for_which_the_disk_is_full_is_named(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("json.dumps", full)
    with pytest.raises(OSError, match="No space left") as error:
        write(tmp_path / "file")
    assert error.value.filename == str(tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_standard_output_on_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = printing("x", stdout=full)
    assert done.returncode == MISTAKE
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_terminal_of_few_characters_shows_the_others_escaped() -> None:
    done = printing("r\u00e9seau", stdout=subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "r\\xe9seau\n")


def test_without_any_standard_output_the_command_does_its_work() -> None:
    closed = ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, PRINTS.format(text="x")]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_rich_finds_closed_has_the_same_status() -> None:
    program = (
        "import sys; from rich.console import Console; from fdgjax.utils.command import command; "
        "sys.exit(command(lambda argv: [Console().print('x' * 9999) for _ in range(99)] and 0)(['']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait() == CLOSED
    assert process.stderr.read() == ""
