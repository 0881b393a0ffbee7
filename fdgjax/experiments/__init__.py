"""One experiment put together: data, model, method, rounds and evaluation."""

from fdgjax.experiments.components import (
    batching_of,
    check_method,
    client_model,
    make_method,
    make_plan,
    model_config,
    on_callers_mesh,
)
from fdgjax.experiments.experiment import Experiment, build
from fdgjax.experiments.facts import model_facts
from fdgjax.experiments.outline import DataDescription, Outline, describe, make_outline, outline_of, to_description

__all__ = [
    "DataDescription",
    "Experiment",
    "Outline",
    "batching_of",
    "build",
    "check_method",
    "client_model",
    "describe",
    "make_method",
    "make_outline",
    "make_plan",
    "model_config",
    "model_facts",
    "on_callers_mesh",
    "outline_of",
    "to_description",
]
