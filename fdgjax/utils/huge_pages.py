"""Memory in pages of 2 MiB instead of 4 KiB, on Linux.

A round's working memory, hundreds of MiB, is allocated from the system anew in each round: with small pages there is a
page fault every 4 KiB, and every matrix product looks up thousands of pages. glibc's allocator requests huge pages if
`GLIBC_TUNABLES` says so when the process starts; it cannot be told later.
"""

import contextlib
import os
import sys
from pathlib import Path

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
"""1: `madvise(MADV_HUGEPAGE)` for the memory that the allocator gets from the system; 0: no huge pages."""
FIRST = (2, 35)
"""The first glibc version with this tunable."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Who gets huge pages: `always [madvise] never` means those that request them."""


def begin_with_huge_pages() -> None:
    """Restarts this process, keeping its command and process id, with an allocator that requests huge pages. Returns if
    huge pages are not available in this way, or if `GLIBC_TUNABLES` already sets the tunable.

    To be called in a program's first line, before it has done anything.
    """
    if (more := environment()) and sys.executable:
        with contextlib.suppress(OSError):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | more)


def environment() -> dict[str, str]:
    """The environment variables to add for such a restart; empty if the tunable is not available or already set."""
    wanted = asking(os.environ.get(VARIABLE, ""), libc(), kernel_setting())
    return {} if wanted is None else {VARIABLE: wanted}


def asking(tunables: str, library: str, allowed: str) -> str | None:
    """The value of `GLIBC_TUNABLES` that requests huge pages; None if it need not or cannot be set.

    Args:
      tunables: the variable's current value.
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
    """The C library and its version; '' if the system does not report them."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def kernel_setting() -> str:
    """The content of `SETTING`; '' if that file cannot be read."""
    try:
        return SETTING.read_text()
    except OSError:
        return ""
