"""The machine of a measurement, for JAX and PyTorch processes alike."""

import os


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
