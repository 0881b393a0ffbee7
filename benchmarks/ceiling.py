"""The machine's ceiling, the rate of a matrix product, and the operations of a network."""

import math
import time
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.jobs import Job, Result
from fdgjax.models.cost import cost
from fdgjax.utils.processor import cores, processor_name

SIZES = {"cpu": (512, 1024, 2048), "other": (4096, 8192, 16384)}
SECONDS = 0.5
"""Spent on each size."""


def measure(job: Job) -> Result:
    """The best rate of a square matrix product over several sizes, in the job's precision and dtype."""
    with jax.default_matmul_precision(job.precision):
        sizes = SIZES.get(jax.default_backend(), SIZES["other"])
        rates = {size: best_rate(size, job.dtype) for size in sizes}
    return {"matmul_flops_per_second": max(rates.values()), "by_size": rates, **facts()}


def best_rate(size: int, dtype: str) -> float:
    """Operations per second of `[size, size] @ [size, size]`: the best of the runs that fit into `SECONDS`."""
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    product = jax.jit(jnp.matmul).lower(a, b).compile()
    product(a, b).block_until_ready()
    best, until = math.inf, time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        begin = time.perf_counter()
        product(a, b).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best


def facts() -> Result:
    """The hardware and software of a JAX process."""
    device = jax.devices()[0]
    name = processor_name() if device.platform == "cpu" else device.device_kind
    return {"backend": jax.default_backend(), "device": name, "cores": cores(), "jax": jax.__version__}


def forward_flops(module: nn.Module, image_shape: Sequence[int]) -> int:
    """Multiplications and additions, counted apart, of one image's forward pass.

    Training costs about three times as much: the gradients by the input and by the kernel are as large as the forward
    pass each.
    """
    return 2 * cost(module, image_shape).flops
