"""Stand-ins for the trackers' libraries: what was written, by run, as a server or a file would keep it."""

import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Rounds = list[tuple[int, dict[str, float]]]


def install(patch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(content)
    patch.setitem(sys.modules, name, module)


def fake_wandb(patch: pytest.MonkeyPatch) -> tuple[dict[str, Rounds], list[dict[str, Any]]]:
    """The rounds of each run, and what each call of `init` got: offline of its newest part, which a kill robs of its
    last round; online of all, as the server knows the run."""
    runs: dict[str, Rounds] = {}
    calls: list[dict[str, Any]] = []

    def init(**arguments: Any) -> Any:
        calls.append(arguments)
        name, online = arguments["id"], arguments["mode"] == "online"
        before = runs.get(name, [])[:-1] if online else []
        mine = runs[name] = before
        step = max((step for step, _ in mine), default=-1) + 1

        def log(values: dict[str, float], step: int) -> None:
            mine.append((step, values))

        return SimpleNamespace(log=log, finish=lambda: None, resumed=bool(mine), step=step)

    install(patch, "wandb", init=init, Settings=lambda **settings: settings)
    return runs, calls


def fake_mlflow(patch: pytest.MonkeyPatch) -> tuple[dict[str, Rounds], dict[str, Any]]:
    """The rounds of each run, and what else the store holds: parameters and the status by run, addresses."""
    runs: dict[str, Rounds] = {}
    store: dict[str, Any] = {"parameters": {}, "status": {}, "addresses": [], "race": False, "raced": False}

    class MlflowException(Exception): ...

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            store["addresses"].append(tracking_uri)

        def get_experiment_by_name(self, name: str) -> Any:
            return SimpleNamespace(experiment_id="1") if runs or store["raced"] else None

        def create_experiment(self, name: str) -> str:
            if store["race"]:
                store["raced"] = True
                raise MlflowException("it exists")
            return "1"

        def create_run(self, experiment: str, run_name: str) -> Any:
            run = f"run{len(runs)}"
            runs[run] = []
            return SimpleNamespace(info=SimpleNamespace(run_id=run))

        def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(metrics) <= 1000
            assert len(params) <= 100
            store["parameters"].setdefault(run, {}).update(dict(params))
            if metrics:
                (step,) = {step for *_, step in metrics}
                runs[run].append((step, {name: value for name, value, *_ in metrics}))

        def get_metric_history(self, run: str, name: str) -> Any:
            return [SimpleNamespace(step=step) for step, values in runs[run] if name in values]

        def update_run(self, run: str, status: str) -> None:
            store["status"][run] = status

        set_terminated: Callable[..., None] = update_run

    install(patch, "mlflow")
    install(patch, "mlflow.exceptions", MlflowException=MlflowException)
    install(patch, "mlflow.tracking", MlflowClient=Client)
    install(patch, "mlflow.entities", Metric=lambda *parts: parts, Param=lambda *parts: parts)
    return runs, store
