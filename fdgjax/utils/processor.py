"""What the processor of this machine can do."""

from functools import lru_cache
from pathlib import Path

AMX = "amx_bf16"
"""Intel's tiles of bfloat16."""
BFLOAT16_PRODUCTS = frozenset({AMX, "avx512_bf16"})
"""Instructions that multiply bfloat16 numbers and add up in float32: AMX, and AVX-512's on Intel and AMD."""


@lru_cache(maxsize=1)
def instructions(source: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's extensions by the names of Linux, such as `avx512_bf16`; none where Linux does not list them."""
    lines = source.read_text().splitlines() if source.is_file() else []
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
