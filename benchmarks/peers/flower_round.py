"""The round in Flower's simulation, which runs clients in Ray's processes: their training is that of `torch`."""

import functools
import os
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from benchmarks import torch_round
from benchmarks.jobs import Job, Result
from benchmarks.timing import CLOCKS
from fdgjax.utils.processor import cores


def measure(job: Job) -> Result:
    """Seconds per round, from one of the server's evaluations to the next, which do nothing else.

    Raises:
      RuntimeError: a round ended without some of its participants, which Flower takes as a round.
    """
    os.environ |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.client import ClientApp
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    clock, ends, trained = CLOCKS[job.clock], list[float](), list[int]()

    def evaluate(number: int, arrays: Any, config: Any) -> None:
        ends.append(clock())

    def count(results: list[Any]) -> dict[str, Any]:
        trained.append(len(results))
        return {}

    def server(context: Any) -> ServerAppComponents:
        strategy = FedAvg(
            fraction_fit=job.participants / job.clients,
            fraction_evaluate=0.0,
            min_fit_clients=job.participants,
            min_available_clients=job.clients,
            initial_parameters=ndarrays_to_parameters(arrays_of(torch_round.network(job))),
            evaluate_fn=evaluate,
            fit_metrics_aggregation_fn=count,
        )
        # The first round starts Ray's processes and is not counted.
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1 + job.rounds))

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=lambda context: client(job, int(context.node_config["partition-id"]))),
        num_supernodes=job.clients,
        backend_config={
            "init_args": {"num_cpus": cores(), "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    seconds = np.diff(ends).tolist()
    if len(seconds) != 1 + job.rounds or trained != [job.participants] * len(seconds):
        raise RuntimeError(
            f"Flower's rounds had {trained} clients; expected {1 + job.rounds} rounds of {job.participants} each"
        )
    return {
        **torch_round.figures(job, seconds[1:], None),
        "compile_seconds": seconds[0],
        "framework": f"Flower {version('flwr')}",
    }


def client(job: Job, number: int) -> Any:
    """One of Flower's clients, with the data of that number."""
    from flwr.client import NumPyClient

    class Client(NumPyClient):
        """Trains as `benchmarks.torch_round` does."""

        def fit(self, parameters: list[np.ndarray], config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
            """One local epoch from the server's arrays."""
            torch.set_num_threads(1)
            model = torch_round.network(job).to(memory_format=torch.channels_last)
            names = model.state_dict().keys()
            model.load_state_dict({name: torch.tensor(a) for name, a in zip(names, parameters, strict=True)})
            images, labels, rows = data_of(job)
            order = rows[number][torch.randperm(len(rows[number]))]
            torch_round.train(model, images, labels, order.split(job.batch_size), job.dtype)
            return arrays_of(model), len(order), {}

    return Client().to_client()


@functools.cache
def data_of(job: Job) -> Any:
    """All clients' data, made once in each process of Flower's: they are not what a round is measured for."""
    return torch_round.random_data(job, torch.device("cpu"))


def arrays_of(model: torch.nn.Module) -> list[np.ndarray]:
    """The model's variables."""
    return [value.detach().cpu().numpy() for value in model.state_dict().values()]
