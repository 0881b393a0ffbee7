"""Memory in pages of 2 MiB instead of 4 KiB, on Linux.

A round's working memory, hundreds of MiB, is taken from the system anew each time: with small pages that is a fault for
every 4 KiB, and every matrix product looks up thousands of them. glibc's allocator asks for huge pages where
`GLIBC_TUNABLES` says so when the process starts, and at no other time.
"""

import contextlib
import os
import sys
from pathlib import Path

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
"""1: `madvise(MADV_HUGEPAGE)` for what the allocator takes from the system; 0: no huge pages."""
FIRST = (2, 35)
"""The glibc that has it."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Who gets huge pages: `always [madvise] never` is those who ask."""


def begin_with_huge_pages() -> None:
    """Starts this process anew, by the same command and under the same number, with an allocator that asks for huge
    pages; returns where none can be had so, or `GLIBC_TUNABLES` already says what is wanted.

    For a program's first line, before it has done anything.
    """
    if (more := environment()) and sys.executable:
        with contextlib.suppress(OSError):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | more)


def environment() -> dict[str, str]:
    """What a process that is to begin so finds in its environment, besides what is there; nothing where none can."""
    wanted = asking(os.environ.get(VARIABLE, ""), libc(), kernel_setting())
    return {} if wanted is None else {VARIABLE: wanted}


def asking(tunables: str, library: str, allowed: str) -> str | None:
    """The value of `GLIBC_TUNABLES` that asks for huge pages; None where it is not to be changed.

    Args:
      tunables: its value now.
      library: the C library and its version, `glibc 2.36`.
      allowed: the content of `SETTING`.
    """
    name, _, version = library.partition(" ")
    numbers = version.split(".")
    if name != "glibc" or not all(part.isdecimal() for part in numbers) or tuple(map(int, numbers)) < FIRST:
        return None
    if "[madvise]" not in allowed or TUNABLE in tunables:
        return None
    return ":".join(filter(None, [tunables, f"{TUNABLE}=1"]))


def libc() -> str:
    """The C library and its version; '' where the system does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def kernel_setting() -> str:
    """The content of `SETTING`; '' where there is none."""
    try:
        return SETTING.read_text()
    except OSError:
        return ""
