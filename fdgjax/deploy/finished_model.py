"""A model that a deployment left, `model.safetensors` of the server or of a node, as a classifier to be exported.

The file says what it is of: the terms that all parties agreed on, the round, and the client whose model it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fdgjax.data.federation import TABLES
from fdgjax.deploy.evaluated_rounds import domain_names
from fdgjax.deploy.kept import FACTS, MODEL
from fdgjax.deploy.terms import from_words
from fdgjax.engine.round import State
from fdgjax.experiments.outline import DataDescription, make_outline
from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.trained_run import TrainedModels
from fdgjax.methods import METHODS
from fdgjax.run.records import Workdir, read_records
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import unflatten

SUFFIX = ".safetensors"


def open_model(file: Path) -> Classifier:
    """The classifier of a file that a deployment wrote, with the server's records, if they lie beside it.

    Raises:
      UserError: no such file, one without these facts, another version's config, or a method that learns no labels.
    """
    variables, facts = read_model(file)
    terms, client = from_words(facts["terms"], earlier=True), int(facts["client"])
    if METHODS[terms.config.method.name].unlabelled:
        raise UserError(
            f"{file} is a model of '{terms.config.method.name}', which learns without labels; expected "
            "one that gives classes"
        )
    names = domain_names(terms)
    data = DataDescription(
        class_names=terms.class_names,
        domain_names=names,
        target="" if terms.unseen is None else names[terms.unseen],
        sample_shape=terms.sample_shape,
        clients=terms.clients,
        samples=(1, *terms.sample_shape),
        tables=dict.fromkeys(TABLES, (terms.clients, 1)),
        images=not terms.columns,
        columns=terms.columns,
        encodings=(terms.used_encoding,),
        trunk=terms.trunk,
    )
    state = State(jnp.uint32(terms.config.seed), jnp.int32(int(facts["round"])), {}, {}, {})
    # Of a server's file; beside a node's there are none.
    records = read_records(Workdir(file.parent))
    trained = TrainedModels(make_outline(terms.config, data), state, 0, records)
    stacked = variables if client == UNSEEN else {path: leaf[None] for path, leaf in variables.items()}
    return Classifier(trained, unflatten(stacked), client)


def read_model(file: Path) -> tuple[dict[str, np.ndarray], Mapping[str, str]]:
    """The variables of such a file by path, and its facts; raises like `open_model`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            facts: Mapping[str, str] = opened.metadata() or {}
            variables: dict[str, Any] = {path: opened.get_tensor(path) for path in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} cannot be read ({error}); expected the model.safetensors of a deployment") from error
    if missing := [name for name in FACTS if name not in facts]:
        raise UserError(
            f"{file} does not say its {', '.join(missing)}; expected the model.safetensors that a deployment of this "
            "version of fdgjax wrote"
        )
    return variables, facts


def refuse_deployment(path: Path) -> None:
    """Raises a `UserError` for the folder of a deployment's server or node, which holds a model and is no run."""
    file = path / MODEL
    if file.is_file() and not (path / "model.json").is_file():
        raise UserError(
            f"{path} is the folder of a deployment; expected an export of its model: fdgjax export {file} --out DIR"
        )
