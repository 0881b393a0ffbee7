"""The threads that a CPU's operations share.

JAX reads their number when it starts. Sums are split among them, so that the last bits of a result depend on it: a
round of hFedF on PACS gave the same with 2 and 3, and others with 1 and 5.
"""

import os

import jax

VARIABLES = ("PJRT_NPROC", "NPROC")
"""In JAX's order; without them it takes as many threads as the process may use cores."""


def cores() -> int:
    """Those of the CPU that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def suggested_threads() -> int:
    """With how many JAX starts, unless a CPU is split into more devices."""
    said = (os.environ.get(name, "") for name in VARIABLES)
    return next((int(count) for count in said if count.isdigit()), cores())


def threads() -> int:
    """Those of this process, in which JAX starts if it has not."""
    devices = len(jax.local_devices()) if jax.default_backend() == "cpu" else 0
    return max(suggested_threads(), devices)


def settle_threads(count: int) -> None:
    """Makes JAX start with so many, instead of those that this machine suggests; nothing, where it has started."""
    if not _jax_has_started():
        os.environ[VARIABLES[0]] = str(count)


def _jax_has_started() -> bool:
    """Whether JAX has its devices, without making them."""
    devices = jax.config.values["jax_num_cpu_devices"]
    try:
        jax.config.update("jax_num_cpu_devices", devices + 1)  # refused once JAX has started, unless it is the same
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", devices)
    return False
