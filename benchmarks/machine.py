"""The machine of a measurement, for JAX and PyTorch processes alike."""

import os
import platform
from pathlib import Path

PROCESSOR = Path("/proc/cpuinfo")


def processor() -> str:
    """The CPU's name."""
    lines = PROCESSOR.read_text().splitlines() if PROCESSOR.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
