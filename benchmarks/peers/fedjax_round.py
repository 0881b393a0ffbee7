"""The round in FedJAX: its federated averaging, client data sets and backend; network and Adam are those of `flax`."""

import warnings
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from benchmarks.jobs import Job, Result
from benchmarks.peers import flax_round
from benchmarks.samples import random_samples
from benchmarks.timing import timed


def measure(job: Job) -> Result:
    """Seconds per round and memory."""
    jax.config.update("jax_enable_compilation_cache", False)
    warnings.simplefilter("ignore", DeprecationWarning)
    fedjax = with_old_names()
    params, loss = flax_round.network(job)
    images, labels, rows = random_samples(job)
    data = [fedjax.ClientDataset({"x": images[places], "y": labels[places]}) for places in rows]
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.create_optimizer_from_optax(flax_round.adam()),
        fedjax.optimizers.sgd(learning_rate=1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch_size, num_steps=job.steps, num_epochs=None, seed=0),
    )
    rng = np.random.default_rng(1)

    def one_round(state: Any) -> Any:
        keys = jax.random.split(jax.random.PRNGKey(rng.integers(2**31)), job.participants)
        drawn = rng.permutation(len(data))[: job.participants]
        clients = [(b"%d" % i, data[i], key) for i, key in zip(drawn, keys, strict=True)]
        return jax.block_until_ready(algorithm.apply(state, clients)[0])

    _, seconds, first = timed(one_round, algorithm.init(params), job.rounds, job.clock)
    return {**flax_round.figures(job, seconds, f"FedJAX {version('fedjax')}"), "compile_seconds": first}


def with_old_names() -> Any:
    """FedJAX with the names that JAX had when FedJAX was last released, in 2023."""
    old = {"tree_map": jax.tree.map, "tree_leaves": jax.tree.leaves, "tree_multimap": jax.tree.map}
    for name, value in old.items():
        if not hasattr(jax, name):
            setattr(jax, name, value)
    import fedjax

    return fedjax
