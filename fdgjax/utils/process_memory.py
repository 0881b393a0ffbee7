"""Main memory as the operating system reports it: what this process uses, what is available, and the total."""

import resource
import sys
from pathlib import Path

STATUS, MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")


def peak_resident_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux it is read from `/proc`, as `getrusage` also counts memory from before the process executed this program;
    not in a sandbox whose `/proc` does not list it, such as gVisor's.
    """
    if (listed := _listed_bytes(STATUS, "VmHWM")) is not None:
        return listed
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """The resident set of this process now (Linux)."""
    return _kilobytes(STATUS, "VmRSS") * 1024


def anonymous_bytes(process: int) -> int:
    """The memory of a running process without the pages of mapped files (Linux)."""
    return _kilobytes(Path(f"/proc/{process}/status"), "RssAnon") * 1024


def available_bytes() -> int | None:
    """Main memory available without swapping; None if the system does not report it."""
    return _listed_bytes(MEMORY, "MemAvailable")


def total_bytes() -> int | None:
    """The total main memory; None if the system does not report it."""
    return _listed_bytes(MEMORY, "MemTotal")


def _listed_bytes(path: Path, field: str) -> int | None:
    """The field in bytes; None if there is no such file, or the file does not list it."""
    try:
        return _kilobytes(path, field) * 1024
    except (FileNotFoundError, StopIteration):
        return None


def _kilobytes(path: Path, field: str) -> int:
    lines = (line.split() for line in path.read_text().splitlines())
    return next(int(words[1]) for words in lines if words and words[0] == f"{field}:")
