"""The round in FLGo: its task, clients, DataLoader, optimiser and server; the network is that of `torch`."""

import contextlib
import importlib
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks import torch_round
from benchmarks.jobs import Job, Result
from benchmarks.timing import timed
from fdgjax.utils.processor import cores

CONFIG = """import json
from benchmarks.jobs import Job
from benchmarks.peers import flgo_round
JOB = Job(**json.loads({text!r}))
train_data = flgo_round.train_data(JOB)
def get_model():
    return flgo_round.network(JOB)
"""
"""The file that describes a benchmark to FLGo."""


def measure(job: Job) -> Result:
    """Seconds per round, which is what its server iterates."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        server = server_of(job, Path(folder))

        def one_round(state: None) -> None:
            server.gv.clock.step()
            server.iterate()
            if len(server.received_clients) != job.participants:
                raise RuntimeError(f"FLGo trained {len(server.received_clients)} clients; expected {job.participants}")

        _, seconds, first = timed(one_round, None, job.rounds, job.clock)
    return {
        **torch_round.figures(job, seconds, None),
        "compile_seconds": first,
        "framework": f"FLGo {version('flgo')}",
    }


def server_of(job: Job, folder: Path) -> Any:
    """FLGo's server of FedAvg with its clients, whose task is made in `folder`."""
    import flgo
    from flgo.algorithm import fedavg
    from flgo.benchmark.partition import IIDPartitioner

    (folder / "configuration.py").write_text(CONFIG.format(text=json.dumps(job._asdict())))
    back = os.getcwd()
    # It names modules by their paths from the working directory.
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        name = flgo.gen_benchmark_from_file("rounds", "configuration.py", target_path=".")
        benchmark = importlib.import_module(name)
        # PyTorch's newer versions ask for it; FLGo 0.4.4 has only the method for a single sample.
        subset = importlib.import_module(f"{name}.core").TaskPipe.TaskDataset
        subset.__getitems__ = lambda data, indices: [data[i] for i in indices]
        partition = IIDPartitioner(num_clients=job.clients)
        flgo.gen_task_by_(benchmark, partition, task_path="task")
        return flgo.init("task", fedavg, option=options(job))
    finally:
        os.chdir(back)


def options(job: Job) -> dict[str, Any]:
    """The same work as of the other contenders."""
    return {
        "num_rounds": 1 + job.rounds,
        "num_steps": job.steps,
        "batch_size": job.batch_size,
        "optimizer": "Adam",
        "learning_rate": torch_round.LEARNING_RATE,
        "weight_decay": torch_round.WEIGHT_DECAY,
        "sample": "uniform" if job.per_round else "full",
        "proportion": job.participants / job.clients,
        "aggregate": "uniform",
        "train_holdout": 0.0,
        "eval_interval": -1,
        "no_log_console": True,
        "no_tqdm": True,
        "torch_num_threads": cores(),
    }


class Files(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The images of a folder, decoded whenever they are used, with the numbers of their classes."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).glob("*/*/*.jpg"))
        classes = sorted({path.parent.name for path in self.paths})
        self.labels = [classes.index(path.parent.name) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[number]) as image:
            pixels = torch.from_numpy(np.array(image.convert("RGB")))
        return pixels.permute(2, 0, 1).float() / 127.5 - 1.0, self.labels[number]


def train_data(job: Job) -> torch.utils.data.Dataset[Any]:
    """Every client's images `[3, H, W]` in [-1, 1] with their labels, one client after another."""
    if job.folder:
        return Files(job.folder)
    images, labels, rows = torch_round.random_data(job, torch.device("cpu"))
    x = images[torch.cat(rows)].permute(0, 3, 1, 2).float() / 127.5 - 1.0
    return torch.utils.data.TensorDataset(x.contiguous(), labels[torch.cat(rows)])


def network(job: Job) -> Any:
    """The network, channels last."""
    return torch_round.network(job).to(memory_format=torch.channels_last)
