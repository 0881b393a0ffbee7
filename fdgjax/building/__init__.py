"""One experiment put together: data, model, method, rounds and evaluation."""

from fdgjax.building.experiment import Experiment, build
from fdgjax.building.facts import model_facts
from fdgjax.building.pieces import (
    batching_of,
    check_method,
    client_model,
    make_method,
    make_plan,
    model_config,
    on_callers_mesh,
)

__all__ = [
    "Experiment",
    "batching_of",
    "build",
    "check_method",
    "client_model",
    "make_method",
    "make_plan",
    "model_config",
    "model_facts",
    "on_callers_mesh",
]
