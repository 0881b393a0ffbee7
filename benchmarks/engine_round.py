"""A round through the real engine, on random images."""

import pkgutil
import statistics
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import dtypes

from benchmarks.ceiling import facts, forward_flops
from benchmarks.jobs import Job, Result
from benchmarks.models import CLASSES, MODELS, twin
from benchmarks.samples import random_samples
from benchmarks.timing import timed
from fdgjax.contract import Model, Output, PyTree, Setup, Variables
from fdgjax.data.federation import Federation, Partition, federate
from fdgjax.data.sources.domains import Domains
from fdgjax.engine import Execution, RoundPlan, compile_init, compile_round, everywhere
from fdgjax.engine.devices import MOST_DEVICES, clients_per_device, drawn_rounds, fastest_on_cpu, split_cpu
from fdgjax.engine.local import Batching
from fdgjax.methods import METHODS
from fdgjax.models import MODELS as NETWORKS
from fdgjax.models import UNITS
from fdgjax.models.client_model import as_model
from fdgjax.nn import Conv, conv2d
from fdgjax.run.memory_check import free_bytes, peak_bytes, predict_memory
from fdgjax.utils.registry import lookup


def measure(job: Job) -> Result:
    """Compile time, seconds per round, and memory; or `skipped`, where the program would not fit into memory."""
    jax.config.update("jax_enable_compilation_cache", False)
    job = job._replace(devices=job.devices or suitable_number(job))
    split_cpu(job.devices)
    with jax.default_matmul_precision(job.precision):
        federation = random_federation(job)
        module = network(job)
        shape = federation.inputs.shape[1:]
        method, plan = method_and_plan(module, federation, job)
        federation = jax.device_put(federation, everywhere(plan.execution))
        state = compile_init(method, plan.execution)(jnp.uint32(0), federation)
        begin = time.perf_counter()
        compiled = compile_round(method, plan).lower(state, federation).compile()
        compile_seconds = time.perf_counter() - begin
    needed, free = predict_memory([compiled], federation, state, job.devices).total, free_bytes()
    about = {"compile_seconds": compile_seconds, "program_bytes": needed, **facts()}
    if free is not None and needed > 0.8 * free:
        return {"skipped": f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free", **about}
    seconds, loss = timed_rounds(compiled, state, federation, job)
    return {
        "images_per_second": job.images_per_round / statistics.median(seconds),
        "seconds_per_round": seconds,
        "loss": loss,
        "peak_bytes": peak_bytes(),
        "flops_per_image": 3 * forward_flops(module, shape),
        **about,
    }


def random_federation(job: Job) -> Federation:
    """Clients with random images, the same for every process."""
    images, labels, rows = random_samples(job)
    nowhere = np.zeros(len(labels), np.int32)
    data = Domains(images, labels, nowhere, ("random",), tuple(map(str, range(CLASSES))))
    some = [np.arange(1)] * len(rows)
    split = Partition(rows, some, some, np.arange(1), np.arange(0))
    return federate(data, split, batch_size=job.batch_size, drop_last=not job.sizes)


def network(job: Job) -> nn.Module:
    """The job's network, ours or its naive twin."""
    if job.network == "naive":
        maker: Callable[..., nn.Module] = pkgutil.resolve_name(twin(job.model, "naive"))
        return maker(classes=CLASSES)
    about = lookup("model", job.model, MODELS)
    return NETWORKS[about.network or job.model](CLASSES, unit=UNITS[about.unit] if about.unit else None)


def method_and_plan(module: nn.Module, federation: Federation, job: Job) -> tuple[Any, RoundPlan]:
    """The job's method with one local epoch of Adam on that network."""
    model = with_plan(as_model(module, federation.inputs.shape[1:], dtype=job.dtype), job.plan)
    entry = lookup("method", job.method, METHODS)
    slots = clients_per_device(expected_rounds(job), job.devices) if job.client_axis == "map" else 0
    execution = Execution(job.client_axis, job.chunk, job.devices, slots=slots)
    method = entry.build(Setup(model, len(job.images), job.rounds, execution), entry.hyper())
    return method, RoundPlan(batching_of(job), job.per_round, execution)


def batching_of(job: Job) -> Batching:
    """One epoch; clients of given sizes have a smaller last minibatch."""
    return Batching(1, job.batch_size, not job.sizes)


def suitable_number(job: Job) -> int:
    """The number of devices that an experiment would choose."""
    forward = forward_flops(network(job), (job.image_size, job.image_size, 3))
    return fastest_on_cpu(expected_rounds(job), MOST_DEVICES, 3 * job.batch_size * forward)


def expected_rounds(job: Job) -> list[np.ndarray]:
    """The steps of the participants of rounds that may come, as an experiment expects them."""
    return drawn_rounds([batching_of(job).steps(np.array(job.images))], job.participants)


def with_plan(model: Model, plan: str) -> Model:
    """The model with every `fdgjax.nn.Conv` of it computed by one plan; `auto` leaves it as it is."""
    if plan == "auto":
        return model

    def planned(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        layer = context.module
        if not isinstance(layer, Conv) or context.method_name != "__call__":
            return call(*args, **kwargs)
        weights = layer.variables["params"]
        x, kernel, bias = dtypes.promote_dtype(args[0], weights["kernel"], weights.get("bias"), dtype=layer.dtype)
        groups = layer.feature_group_count
        y = conv2d(x, kernel, strides=layer.strides, padding=layer.padding, groups=groups, plan=plan)
        return y if bias is None else y + bias[None, None, None]

    def apply(variables: Variables, images: jax.Array, train: bool, key: jax.Array) -> tuple[Output, Variables]:
        with nn.intercept_methods(planned):
            return model.apply(variables, images, train, key)

    return Model(model.init, apply)


def timed_rounds(compiled: Any, state: PyTree, federation: Federation, job: Job) -> tuple[list[float], float]:
    """Seconds of each round after one that is not timed, and the last round's mean loss."""

    def one_round(state_and_info: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        return jax.block_until_ready(compiled(state_and_info[0], federation))

    first: tuple[PyTree, Any] = (state, None)
    (_, info), seconds, _ = timed(one_round, first, job.rounds, job.clock)
    return seconds, float(jnp.mean(info.loss))
