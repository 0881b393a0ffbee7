"""What a measurement ran on, and the memory it took; for JAX and for PyTorch processes alike."""

import os
import platform
import resource
import sys
from pathlib import Path

STATUS, MEMORY, PROCESSOR = Path("/proc/self/status"), Path("/proc/meminfo"), Path("/proc/cpuinfo")


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


def processor() -> str:
    """The CPU's name."""
    lines = PROCESSOR.read_text().splitlines() if PROCESSOR.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
