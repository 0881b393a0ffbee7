"""Main memory as the system accounts for it: what this process took, and what can still be had."""

import resource
import sys
from pathlib import Path

STATUS, MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")


def peak_resident_bytes() -> int:
    """The largest resident set of this process so far.

    On Linux from `/proc`: `getrusage` there also counts what the process was before it started this program.
    """
    if STATUS.exists():
        return _kilobytes(STATUS, "VmHWM") * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_bytes() -> int | None:
    """Main memory that can be had without swapping; None where the system does not say."""
    return _kilobytes(MEMORY, "MemAvailable") * 1024 if MEMORY.exists() else None


def _kilobytes(path: Path, field: str) -> int:
    lines = (line.split() for line in path.read_text().splitlines())
    return next(int(words[1]) for words in lines if words and words[0] == f"{field}:")
