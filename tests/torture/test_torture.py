"""Two minutes of `python -m tests.torture`: nothing is lost and nothing silent."""

import subprocess
import sys

import pytest

from tests.runs import ROOT


@pytest.mark.slow
def test_two_minutes_of_torture_change_no_result() -> None:
    command = [sys.executable, "-m", "tests.torture", "--minutes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
