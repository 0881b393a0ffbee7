"""MLflow: a run of the experiment `fdgjax`, in `mlflow.db` in the run's folder or in the store of MLFLOW_TRACKING_URI.

mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from flax.traverse_util import flatten_dict

from fdgjax.loggers.base import Logger, RunInfo, Sink
from fdgjax.loggers.run_id import read_id, write_id

EXPERIMENT = "fdgjax"
OWN = "mlflow.db"
"""The store in the run's own folder."""
MOST = 100
"""The maximum number of parameters in one request, which is MLflow's own limit."""
MOST_METRICS = 1000
LONGEST = 250
"""The maximum length of a name."""


def open_mlflow(info: RunInfo) -> Sink:
    """Opens the run that `mlflow.json` names for this store, or a new one; the store says which rounds it has."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    shared, own = os.environ.get("MLFLOW_TRACKING_URI"), f"sqlite:///{(info.folder / OWN).absolute()}"
    client = MlflowClient(tracking_uri=shared or own)
    # The address without the user name and password that it may contain.
    place_of_store = shared.rpartition("@")[2] if shared else OWN
    note = read_id(info.folder, "mlflow")
    # Earlier versions noted the whole path of a run's own store, which is another one where the folder is moved.
    if note.get("store") in (place_of_store, shared or own):
        run, held = note["run"], last_round(client, note["run"])
        client.update_run(run, status="RUNNING")
    else:
        run, held = begun(client, info), 0
        write_id(info.folder, "mlflow", run=run, store=place_of_store)
    last = held

    def write(round_: int, numbers: Mapping[str, float]) -> None:
        nonlocal last
        now = int(1000 * time.time())
        # The round's number is written last: a round whose number the store has is complete.
        ordered = sorted(numbers.items(), key=lambda item: item[0] == "round")
        metrics = [Metric(allowed(name), value, now, round_) for name, value in ordered]
        for i in range(0, len(metrics), MOST_METRICS):
            client.log_batch(run, metrics=metrics[i : i + MOST_METRICS])
        last = round_

    def close() -> None:
        client.set_terminated(run, "FINISHED" if last >= info.config["rounds"] else "KILLED")

    return Sink(held, write, close)


def last_round(client: Any, run: str) -> int:
    """The last round that the store has; 0 for none."""
    return max((int(metric.step) for metric in client.get_metric_history(run, "round")), default=0)


def begun(client: Any, info: RunInfo) -> str:
    """The id of a new run, with the config's keys as its parameters."""
    from mlflow.entities import Param

    run: str = client.create_run(experiment_of(client), run_name=info.name).info.run_id
    parameters = [Param(allowed(key), str(value)) for key, value in flatten_dict(info.config, sep=".").items()]
    for i in range(0, len(parameters), MOST):
        client.log_batch(run, params=parameters[i : i + MOST])
    return run


def experiment_of(client: Any) -> str:
    """The id of the experiment, which another run may make between the question and the answer."""
    from mlflow.exceptions import MlflowException

    known = client.get_experiment_by_name(EXPERIMENT)
    try:
        made: str = known.experiment_id if known else client.create_experiment(EXPERIMENT)
    except MlflowException:
        known = client.get_experiment_by_name(EXPERIMENT)
        if known is None:
            raise
        made = known.experiment_id
    return made


def allowed(name: str) -> str:
    """The name in the characters and the length that MLflow accepts; for another character stands its code, as 3c for
    <, since two names must not become one."""
    return re.sub(r"[^\w\-. /]", lambda found: f"_{ord(found[0]):x}_", name)[:LONGEST]


ENTRY = Logger("mlflow", "MLflow's records", "mlflow", open_mlflow)
