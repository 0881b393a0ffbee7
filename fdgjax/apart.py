"""How far the clients' models of a trained run are apart, and which classes they predict.

    fdgjax apart RUN [RUN ...] [--data_dir DATA]

At each run's newest checkpoint: the distance of the clients' models, the mean over all pairs of `||w_i - w_j||` divided
by the mean of `||w_i||`, w being all parameters; and the accuracy of each model, of the mean of their parameters and,
where the server keeps a hypernetwork, of the model that it generates from the mean embedding. `id` is a client's model
on that client's held-out data, and of a mean the mean over clients; `ood` is the accuracy on the unseen domain. A model
whose `ood` is near the share of one class may predict that class alone: the most predicted class and its share stand
beside it. It prints a table for each run and writes it to `RUN/apart.json`.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from fdgjax.building import Experiment
from fdgjax.contract import Variables
from fdgjax.data.federation import Partition
from fdgjax.door import door
from fdgjax.engine import State, each_seed
from fdgjax.errors import UserError
from fdgjax.evaluation.features import classes_of_rows
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hypernetwork import HyperServer, with_mean_embedding
from fdgjax.run.reopen import reopen
from fdgjax.sealed import write_checked_json


@door
def main(argv: Sequence[str]) -> int:
    """Compares the models of each run.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="fdgjax apart", description=str(__doc__).partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the run")
    args = parser.parse_args(argv[1:])
    for run in args.runs:
        experiment, state, history = reopen(run, args.data_dir)
        refuse_representations(run, experiment)
        found = compared(experiment, each_seed(state, experiment.config.seeds)[0], experiment.parts[0])
        write_checked_json(run / "apart.json", {"round": len(history.records[0])} | found)
        show(run, found)
    return 0


def refuse_representations(run: Path, experiment: Experiment) -> None:
    """Raises a `UserError` for a run whose models predict no classes."""
    if METHODS[experiment.config.method.name].unlabelled or experiment.method.pooled:
        raise UserError(
            f"{run} is a run of '{experiment.config.method.name}'; expected one whose clients have models that classify"
        )


def compared(experiment: Experiment, state: State, parts: Partition) -> dict[str, Any]:
    """Distance, accuracies and predictions of the first seed's models; see the module.

    Args:
      experiment: of one seed or several. state, parts: of the first seed.
    """
    data, each = experiment.data, models_of(experiment, state)
    clients, models = len(parts.validation), {**each, **means_of(experiment, state, each)}
    asked: list[tuple[Variables, np.ndarray]] = []
    for place, variables in enumerate(models.values()):
        held_out = parts.validation[place : place + 1] if place < clients else parts.validation
        asked += [(variables, rows) for rows in (*held_out, parts.target)]
    answers = iter(classes_of_rows(experiment.model, experiment.federation, asked, experiment.config.eval_batch_size))
    rows = iter(rows for _, rows in asked)

    def of_model(place: int) -> dict[str, Any]:
        own = [mean_right(next(answers), data.labels[next(rows)]) for _ in range(1 if place < clients else clients)]
        predicted, true = next(answers), data.labels[next(rows)]
        return {"id": float(np.mean(own)), **predictions(predicted, true, data.class_names)}

    return {
        "distance": distance(list(each.values())),
        "target": experiment.facts["target"],
        "target_majority": experiment.facts.get("target_majority"),
        "models": {name: of_model(place) for place, name in enumerate(models)},
    }


def models_of(experiment: Experiment, state: State) -> dict[str, Variables]:
    """The variables that predict for each client, by its number."""
    predict = jax.jit(experiment.method.predict)
    count = len(experiment.parts[0].train)
    rows = [jax.tree.map(lambda leaf, i=i: leaf[i], state.clients) for i in range(count)]
    return {f"client {i}": jax.device_get(predict(state.server, row)) for i, row in enumerate(rows)}


def means_of(experiment: Experiment, state: State, each: Mapping[str, Variables]) -> dict[str, Variables]:
    """The mean of the models, and the model of the mean embedding where there are embeddings."""
    found = {"mean of the models": jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *each.values())}
    if isinstance(state.server, HyperServer):
        first = jax.tree.map(lambda leaf: leaf[0], state.clients)
        found["mean embedding"] = jax.device_get(experiment.method.predict(with_mean_embedding(state.server), first))
    return found


def distance(models: Sequence[Variables]) -> float:
    """The mean over pairs of `||w_i - w_j||` by the mean of `||w_i||`; 0 for a single model."""
    vectors = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one["params"])]) for one in models]
    pairs = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(vectors, 2)]
    return float(np.mean(pairs) / np.mean([np.linalg.norm(one) for one in vectors])) if pairs else 0.0


def mean_right(predicted: np.ndarray, true: np.ndarray) -> float:
    """Accuracy."""
    return float(np.mean(predicted == true))


def predictions(predicted: np.ndarray, true: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy on the unseen domain and the most predicted class there; empty without an unseen domain."""
    if not len(true):
        return {}
    shares = np.bincount(predicted, minlength=len(names)) / len(predicted)
    most = int(np.argmax(shares))
    return {"ood": mean_right(predicted, true), "most_predicted": names[most], "share": float(shares[most])}


def show(run: Path, found: Mapping[str, Any]) -> None:
    """Prints the table of a run's models."""
    majority = "" if found["target_majority"] is None else f"; its largest class: {found['target_majority']:.3f}"
    title = f"{run}: models {found['distance']:.4f} apart; unseen: {found['target'] or 'nothing'}{majority}"
    table = Table("model", "id", "ood", "most predicted", title=title)
    for name, one in found["models"].items():
        unseen = (f"{one['ood']:.3f}", f"{one['most_predicted']} {one['share']:.3f}") if "ood" in one else ("", "")
        table.add_row(name, f"{one['id']:.3f}", *unseen)
    Console().print(table)
