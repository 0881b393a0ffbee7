"""What the processor of this machine can do."""

import os
import platform
from functools import lru_cache
from pathlib import Path

LISTED = Path("/proc/cpuinfo")
"""Where Linux describes the processor."""

AMX = "amx_bf16"
"""Intel's tiles, whose products of bfloat16 numbers are four to five times as fast as float32's."""


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def instructions(source: Path = LISTED) -> frozenset[str]:
    """The processor's extensions by the names of Linux, such as `avx512_bf16`; none where Linux does not list them."""
    return frozenset(listed("flags", source).split())


def processor_name() -> str:
    """The processor's name."""
    return listed("model name") or platform.processor() or platform.machine()


def listed(key: str, source: Path = LISTED) -> str:
    """The first value of a key; '' where Linux lists none."""
    lines = source.read_text().splitlines() if source.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
