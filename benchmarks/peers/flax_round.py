"""The round on Flax's own layers, as it is usually written: one compiled training step, called from Python's loops."""

import pkgutil
import statistics
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.jobs import Job, Result
from benchmarks.models import CLASSES, twin
from benchmarks.samples import random_samples
from benchmarks.timing import timed
from fdgjax.utils.process_memory import peak_resident_bytes
from fdgjax.utils.processor import cores, processor_name

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
"""As `fdgjax.methods.parts.hyper.ClientHyper`."""

Loss = Callable[[Any, Any, jax.Array], jax.Array]


def measure(job: Job) -> Result:
    """Seconds per round and memory."""
    jax.config.update("jax_enable_compilation_cache", False)
    params, loss = network(job)
    optimiser = adam()

    @partial(jax.jit, donate_argnums=1)
    def step(params: Any, opt_state: Any, batch: Any, key: jax.Array) -> tuple[Any, Any]:
        updates, opt_state = optimiser.update(jax.grad(loss)(params, batch, key), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    images, labels, rows = random_samples(job)
    start, rng = jax.jit(optimiser.init), np.random.default_rng(1)
    mean = jax.jit(lambda models: jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *models))

    def client(shared: Any, places: np.ndarray, key: jax.Array) -> Any:
        params, opt_state = shared, start(shared)
        for chosen in np.split(rng.permutation(places), job.steps):
            key, now = jax.random.split(key)
            params, opt_state = step(params, opt_state, {"x": images[chosen], "y": labels[chosen]}, now)
        return params

    def one_round(shared: Any) -> Any:
        keys = jax.random.split(jax.random.key(rng.integers(2**31)), job.participants)
        drawn = rng.permutation(len(rows))[: job.participants]
        models = [client(shared, rows[number], key) for number, key in zip(drawn, keys, strict=True)]
        return jax.block_until_ready(mean(models))

    _, seconds, first = timed(one_round, params, job.rounds, job.clock)
    return {**figures(job, seconds, f"Flax {version('flax')}"), "compile_seconds": first}


def network(job: Job) -> tuple[Any, Loss]:
    """First parameters and the mean loss of a batch `{"x": images as bytes, "y": labels}`."""
    module: nn.Module = pkgutil.resolve_name(twin(job.model, "naive"))(classes=CLASSES)
    shape = (1, job.image_size, job.image_size, 3)
    params = jax.jit(module.init)(jax.random.key(0), jnp.zeros(shape))["params"]

    def loss(params: Any, batch: Any, key: jax.Array) -> jax.Array:
        x = batch["x"].astype(jnp.float32) / 127.5 - 1.0
        logits = module.apply({"params": params}, x, train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    return params, loss


def adam() -> optax.GradientTransformation:
    """Adam with weight decay in the gradient, as PyTorch's."""
    return optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.adam(LEARNING_RATE))


def figures(job: Job, seconds: list[float], framework: str) -> Result:
    """What every measurement on a CPU with JAX reports."""
    return {
        "images_per_second": job.images_per_round / statistics.median(seconds),
        "seconds_per_round": seconds,
        "peak_bytes": peak_resident_bytes(),
        "backend": jax.default_backend(),
        "device": processor_name(),
        "cores": cores(),
        "jax": jax.__version__,
        "framework": framework,
    }
