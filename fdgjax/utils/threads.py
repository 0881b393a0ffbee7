"""The threads among which JAX splits an operation on a CPU.

JAX reads their number when it starts. Sums are split among them, so that the last bits of a result depend on the number
of threads: a round of hFedF on PACS gave the same result with 2 and 3 threads, and others with 1 and 5.
"""

import os

import jax

from fdgjax.utils.processor import cores

VARIABLES = ("PJRT_NPROC", "NPROC")
"""The variables that set the number of threads, in JAX's order; without them there is one thread per usable core."""


def suggested_threads() -> int:
    """The number of threads with which JAX starts, unless a CPU is split into more devices."""
    said = (os.environ.get(name, "") for name in VARIABLES)
    return next((int(count) for count in said if count.isdigit()), cores())


def threads() -> int:
    """The number of threads of this process; starts JAX if it has not started."""
    devices = len(jax.local_devices()) if jax.default_backend() == "cpu" else 0
    return max(suggested_threads(), devices)


def settle_threads(count: int) -> None:
    """Makes JAX start with `count` threads instead of this machine's default; no-op once JAX has started."""
    if not _jax_has_started():
        os.environ[VARIABLES[0]] = str(count)


def _jax_has_started() -> bool:
    """Whether JAX has created its devices; does not create them."""
    devices = jax.config.values["jax_num_cpu_devices"]
    try:
        jax.config.update("jax_num_cpu_devices", devices + 1)  # once JAX has started, it refuses any new value
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", devices)
    return False
