"""Weights & Biases: a run of the project `fdgjax`, in the folder `wandb`, offline unless WANDB_MODE says otherwise.

    wandb sync RUN/wandb/latest-run         # sends offline records to a server

Offline, each part of a resumed run begins with all earlier rounds, since the library loses unwritten records when a run
is killed; so the newest part is complete. All parts have the same id. Online, the server says which rounds it has.
"""

import os
import uuid
from collections.abc import Mapping

from fdgjax.loggers.base import Logger, RunInfo, Sink
from fdgjax.loggers.run_id import read_id, write_id

PATIENCE = 60.0
"""Seconds that a run waits at its end for records to reach the server."""


def open_wandb(info: RunInfo) -> Sink:
    """Opens the run that `wandb.json` names, or a new one."""
    import wandb

    name = read_id(info.folder, "wandb").get("run") or uuid.uuid4().hex[:12]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "fdgjax"),
        name=info.name,
        id=name,
        resume="allow",
        mode=os.environ.get("WANDB_MODE", "offline"),
        dir=info.folder,
        config=dict(info.config),
        reinit="create_new",  # the seeds' runs are open at the same time
        settings=wandb.Settings(console="off", silent=True, finish_timeout=PATIENCE),
    )
    write_id(info.folder, "wandb", run=name)

    def write(round_: int, numbers: Mapping[str, float]) -> None:
        run.log(dict(numbers), step=round_)

    # `run.step` is the step of the next round.
    return Sink(run.step - 1 if run.resumed else 0, write, run.finish)


ENTRY = Logger("wandb", "Weights & Biases' records", "wandb", open_wandb)
