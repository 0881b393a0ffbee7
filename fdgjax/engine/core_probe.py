"""Measures how a CPU's cores work together; a program of its own, as JAX splits a CPU only before it starts.

`python core_probe.py CORES` prints a JSON list, the work per second of one device, of a device for each core, and of
one device more than cores: each the best of the repeats in which a device for each core had the cores to itself. The
list is empty if other work kept cores busy all the time.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

SHAPE, KERNEL = (64, 16, 16, 32), (3, 3, 32, 32)
STEPS, REPEATS = 20, 8
QUIET = 0.9
"""The share of all cores' time that devices for all cores must have got."""


def layers(images: jax.Array, kernel: jax.Array, steps: jax.Array) -> jax.Array:
    """`steps` times a convolution, a normalisation and a ReLU: like training, partly products, partly memory.

    If `steps` were a constant, XLA would find the program short and run it before the call returns.
    """

    def layer(i: int, x: jax.Array) -> jax.Array:
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.nn.relu((x - jnp.mean(x, (0, 1, 2))) * jax.lax.rsqrt(jnp.var(x, (0, 1, 2)) + 1e-5))

    return jnp.sum(jax.lax.fori_loop(0, steps, layer, images))


def main(cores: int) -> None:
    """Measures and prints."""
    jax.config.update("jax_num_cpu_devices", cores + 1)
    jax.config.update("jax_enable_compilation_cache", False)
    rng = np.random.default_rng(0)
    images, kernel = rng.standard_normal(SHAPE, np.float32), 0.05 * rng.standard_normal(KERNEL, np.float32)
    arrays = images, kernel, np.int32(STEPS)
    placed = [jax.device_put(arrays, device) for device in jax.devices("cpu")]
    programs = [jax.jit(layers).lower(*own).compile() for own in placed]

    def rate(devices: int) -> tuple[float, float]:
        begin, used = time.perf_counter(), time.process_time()
        jax.block_until_ready([programs[i](*placed[i]) for i in range(devices)])
        passed = time.perf_counter() - begin
        return devices / passed, (time.process_time() - used) / passed

    repeats = [[rate(count) for count in (1, cores, cores + 1)] for _ in range(1 + REPEATS)][1:]
    quiet = [[work for work, _ in repeat] for repeat in repeats if repeat[1][1] > QUIET * cores]
    print(json.dumps([max(column) for column in zip(*quiet, strict=True)]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
