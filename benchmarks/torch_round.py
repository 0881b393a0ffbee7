"""The same round in PyTorch: one client after another, channels last, Adam, then the mean of their updates."""

import pkgutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.jobs import Job, Result
from benchmarks.models import CLASSES, twin
from benchmarks.samples import random_samples
from benchmarks.timing import timed
from fdgjax.utils.process_memory import peak_resident_bytes
from fdgjax.utils.processor import cores, processor_name

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 1e-4
"""As `fdgjax.methods.parts.hyper.ClientHyper`."""

EXACT: Mapping[str, bool] = {"float32": True, "highest": True}
"""Precisions under which TF32 is forbidden; JAX allows it on a GPU under all others, its default among them."""


def measure(job: Job) -> Result:
    """Seconds per round and memory; nothing is compiled."""
    return {**_measure(job, lambda model: None), "compile_seconds": 0.0}


def measure_compiled(job: Job) -> Result:
    """The same with the network's forward and backward pass compiled, in the round that is not timed."""
    return _measure(job, torch.nn.Module.compile)


def _measure(job: Job, prepare: Callable[[torch.nn.Module], None]) -> Result:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network(job).to(device, memory_format=torch.channels_last)
    prepare(model)
    images, labels, rows = random_data(job, device)

    def run(state: tuple[dict[str, torch.Tensor], torch.Tensor]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        drawn = [rows[client] for client in torch.randperm(len(rows))[: job.participants]]
        after = one_round(model, state[0], (images, labels, drawn), job, device)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return after

    (_, loss), seconds, first = timed(run, (copy(model), torch.zeros(())), job.rounds, job.clock)
    return {**figures(job, seconds, float(loss)), "compile_seconds": first}


def network(job: Job) -> Any:
    """The job's network in PyTorch, in the job's precision."""
    exact = EXACT.get(job.precision, False)
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact
    torch.backends.cudnn.benchmark = True
    return pkgutil.resolve_name(twin(job.model, "torch"))(classes=CLASSES, image_size=job.image_size)


def figures(job: Job, seconds: Sequence[float], loss: float | None) -> Result:
    """What every measurement with PyTorch reports."""
    cuda = torch.cuda.is_available()
    return {
        "images_per_second": job.images_per_round / statistics.median(seconds),
        "seconds_per_round": list(seconds),
        "loss": loss,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else peak_resident_bytes(),
        "backend": "cuda" if cuda else "cpu",
        "device": torch.cuda.get_device_name() if cuda else processor_name(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "framework": f"PyTorch {torch.__version__.partition('+')[0]}",
    }


def random_data(job: Job, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """`random_samples` on the device; PyTorch's cross-entropy needs labels as int64."""
    images, labels, rows = random_samples(job)
    put = lambda array: torch.from_numpy(array).to(device)  # noqa: E731
    return put(images), put(labels).long(), list(map(put, rows))


def copy(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's variables, not shared with it."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def one_round(
    model: torch.nn.Module, shared: dict[str, torch.Tensor], data: Any, job: Job, device: torch.device
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Every client trains from `shared`; returns the mean of the trained models, and the mean loss."""
    images, labels, rows = data
    # BatchNorm's count of batches is an integer that nothing reads: it stays as it was.
    mean = {name: torch.zeros_like(value) if value.is_floating_point() else value for name, value in shared.items()}
    total = torch.zeros((), device=device)
    for places in rows:
        model.load_state_dict(shared)
        order = places[torch.randperm(len(places), device=device)]
        total += train(model, images, labels, order.split(job.batch_size), job.dtype)
        with torch.no_grad():
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    mean[name] += value / len(rows)
    return mean, total / len(rows)


def train(
    model: torch.nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    batches: tuple[torch.Tensor, ...],
    dtype: str,
) -> torch.Tensor:
    """One client's epoch with a fresh Adam; the mean loss."""
    model.train()
    adam = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    total = torch.zeros((), device=images.device)
    for rows in batches:
        # Stored as [batch, H, W, channels], seen as [batch, channels, H, W]: that is channels last.
        x = images[rows].permute(0, 3, 1, 2).float() / 127.5 - 1.0
        low = nullcontext() if dtype == "float32" else torch.autocast(images.device.type, getattr(torch, dtype))
        with low:
            loss = F.cross_entropy(model(x), labels[rows])
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        total += loss.detach()
    return total / len(batches)
