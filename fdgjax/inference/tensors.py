"""A classifier's variables by name, and the facts that their user needs."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fdgjax.config import to_plain
from fdgjax.data.sources.cells import TEXT_MISSING, spelt_code
from fdgjax.evaluation.probability_figures import THRESHOLD
from fdgjax.inference.classifier import UNSEEN, Classifier
from fdgjax.inference.trained_run import unstacked
from fdgjax.utils.files import write_bytes
from fdgjax.utils.variables import flatten
from fdgjax.utils.words import words_of


def tensors_of(classifier: Classifier) -> dict[str, np.ndarray]:
    """Every variable by its path, `params/head/kernel`, including those of a frozen trunk; with several models
    `0/params/...`."""
    trunk, models = classifier.outline.trunk, unstacked(classifier.models)
    frozen = flatten(trunk.variables) if trunk else {}
    return {
        ("" if len(models) == 1 else f"{i}/") + path: np.ascontiguousarray(leaf)
        for i, model in enumerate(models)
        for path, leaf in (frozen | flatten(model)).items()
    }


NUMBER = "a number in the label's unit"


def facts_of(classifier: Classifier) -> dict[str, Any]:
    """What a user of the variables or of the program must know, as plain data."""
    config, guards = classifier.outline.config, classifier.safeguards
    scale = classifier.label_scale
    return {
        "classes": [] if scale is not None else list(classifier.class_names),
        **({} if scale is None else {"prediction": NUMBER}),
        **samples_of(classifier),
        "temperature": classifier.temperature,
        **({} if guards is None else {"set_quantiles": guards.exported(classifier.calibrated)}),
        **threshold_of(classifier),
        "model_of": classifier.whose,
        "round": classifier.trained.round,
        "selection": config.selection,
        "seed": classifier.trained.seed,
        "method": config.method.name,
        "network": config.model.name,
        "scaling": config.data.scaling,
        "dataset": config.data.name,
        **({"group": config.data.group} if config.data.group else {}),
        "fdgjax": version("fdgjax"),
    }


def samples_of(classifier: Classifier) -> dict[str, Any]:
    """What a sample is: an image of a shape; a row of a table's columns, with the words that stand for a missing value;
    or another array of a shape."""
    data = classifier.outline.data
    if data.columns:
        columns = [{"name": name, "categories": list(categories)} for name, categories in data.columns]
        where = classifier.outline.config.data
        # Numbers that stand for a missing value as the card's code compares them, "-9" for "-9.0".
        missing = [*TEXT_MISSING, *map(spelt_code, words_of(where.missing))]
        return {"columns": columns, "missing": missing, "label": where.label}
    return {"image_shape" if data.images else "sample_shape": list(data.sample_shape)}


def threshold_of(classifier: Classifier) -> dict[str, float]:
    """The threshold of `config.figures` that the clients' validation data gave after the round, if there is one; not
    for calibrated probabilities or one client's model, whose probabilities are other ones."""
    trained = classifier.trained
    found = next((record for record in trained.records if record["round"] == trained.round), {})
    own = classifier.temperature == 1 and classifier.client == UNSEEN
    return {THRESHOLD: found[THRESHOLD]} if THRESHOLD in found and own else {}


def words_of_model(classifier: Classifier) -> dict[str, str]:
    """The facts and the config, as the tensors' file has them."""
    facts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts_of(classifier).items()}
    return facts | {"config": json.dumps(to_plain(classifier.outline.config))}


def write_tensors(classifier: Classifier, file: Path) -> None:
    """Writes the variables, with the facts and the config as metadata."""
    from safetensors.numpy import save

    # Safetensors' own file would be its owner's alone.
    write_bytes(file, save(tensors_of(classifier), metadata=words_of_model(classifier)))
