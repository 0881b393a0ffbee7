"""What the processor of this machine can do."""

from functools import lru_cache
from pathlib import Path

AMX = "amx_bf16"
"""Intel's tiles, whose products of bfloat16 numbers are four to five times as fast as float32's."""


@lru_cache(maxsize=1)
def instructions(source: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's extensions by the names of Linux, such as `avx512_bf16`; none where Linux does not list them."""
    lines = source.read_text().splitlines() if source.is_file() else []
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
