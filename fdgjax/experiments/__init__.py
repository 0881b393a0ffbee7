"""One experiment put together: data, model, method, rounds and evaluation."""

from fdgjax.experiments.chosen_data import found_data
from fdgjax.experiments.components import (
    batching_of,
    check_method,
    make_method,
    make_plan,
    on_callers_mesh,
)
from fdgjax.experiments.evaluations import evaluation_settings
from fdgjax.experiments.experiment import Experiment, build
from fdgjax.experiments.facts import (
    bytes_per_round,
    client_names,
    image_facts,
    method_facts,
    model_facts,
    owner_names,
    split_facts,
)
from fdgjax.experiments.model import fit_model, model_config, unsplit_encoding
from fdgjax.experiments.outline import (
    DataDescription,
    Outline,
    describe,
    from_description,
    make_outline,
    outline_of,
    to_description,
)

__all__ = [
    "DataDescription",
    "Experiment",
    "Outline",
    "batching_of",
    "build",
    "bytes_per_round",
    "check_method",
    "client_names",
    "describe",
    "evaluation_settings",
    "fit_model",
    "found_data",
    "from_description",
    "image_facts",
    "make_method",
    "make_outline",
    "make_plan",
    "method_facts",
    "model_config",
    "model_facts",
    "on_callers_mesh",
    "outline_of",
    "owner_names",
    "split_facts",
    "to_description",
    "unsplit_encoding",
]
