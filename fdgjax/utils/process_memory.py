"""Main memory as the operating system reports it: what this process uses, what is available, and the total."""

import resource
import sys
from pathlib import Path

STATUS, MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")


def peak_resident_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux it is read from `/proc`, as `getrusage` also counts memory from before the process executed this program.
    """
    if STATUS.exists():
        return _kilobytes(STATUS, "VmHWM") * 1024
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
    return _kilobytes(MEMORY, "MemAvailable") * 1024 if MEMORY.exists() else None


def total_bytes() -> int | None:
    """The total main memory; None if the system does not report it."""
    return _kilobytes(MEMORY, "MemTotal") * 1024 if MEMORY.exists() else None


def _kilobytes(path: Path, field: str) -> int:
    lines = (line.split() for line in path.read_text().splitlines())
    return next(int(words[1]) for words in lines if words and words[0] == f"{field}:")
