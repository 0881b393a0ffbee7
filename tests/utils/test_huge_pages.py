"""A command begins anew with huge pages where the system gives them to those who ask, once, and as the same process."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdgjax.utils.huge_pages import FIRST, TUNABLE, VARIABLE, asking, kernel_setting, libc
from tests.runs import ROOT

LEFT_TO_PROGRAMS = "always [madvise] never"


@given(tunables=st.text("abc.=1:", max_size=20), minor=st.integers(0, 60))
def test_what_was_said_stays_and_nobody_asks_twice(tunables: str, minor: int) -> None:
    asked = asking(tunables, f"glibc 2.{minor}", LEFT_TO_PROGRAMS)
    assert (asked is not None) == ((2, minor) >= FIRST)
    if asked is not None:
        assert [part for part in asked.split(":") if part] == [*filter(None, tunables.split(":")), f"{TUNABLE}=1"]
        assert asking(asked, f"glibc 2.{minor}", LEFT_TO_PROGRAMS) is None


@pytest.mark.parametrize("library", ["", "glibc", "glibc 2.x", "musl 2.36", "glibc 2.34"])
def test_another_library_is_left_alone(library: str) -> None:
    assert asking("", library, LEFT_TO_PROGRAMS) is None


@pytest.mark.parametrize("allowed", ["", "[always] madvise never", "always madvise [never]"])
def test_a_system_that_asks_nobody_is_left_alone(allowed: str) -> None:
    assert asking("", "glibc 2.36", allowed) is None


@pytest.mark.parametrize("said", ["", f"{TUNABLE}=0"])
def test_a_command_begins_as_the_same_process_with_its_own_words(said: str) -> None:
    """Of a process that tells its number, its words and what was asked for."""
    code = "import os, sys; print(os.getpid(), os.environ.get('GLIBC_TUNABLES', ''), sys.argv[1:])"
    program = f"from fdgjax.utils.huge_pages import begin_with_huge_pages; begin_with_huge_pages(); {code}"
    words = [sys.executable, "-X", "utf8", "-c", program, "one", "two words"]
    with subprocess.Popen(
        words, cwd=ROOT, env=os.environ | {VARIABLE: said}, stdout=subprocess.PIPE, text=True
    ) as child:
        told, _ = child.communicate(timeout=60)
    wanted = asking(said, libc(), kernel_setting())
    assert child.returncode == 0
    assert told == f"{child.pid} {said if wanted is None else wanted} ['one', 'two words']\n"
