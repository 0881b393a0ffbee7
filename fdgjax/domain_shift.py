"""Measures whether the gradients of two domains agree less the more the domains differ (FedGaLA, Theorem 1, Figure 2).

    fdgjax shift RUN [--data_dir DATA] [--batches 20] [--repeats 5]

For each pair of domains of a run's data set, the unseen domain included, it computes at the run's newest checkpoint the
covariance of the loss gradients and the mutual information of the model's features. It prints the table and writes it
to `RUN/domain_shift.json`, from which a report draws the figure.
"""

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from fdgjax.building import Experiment
from fdgjax.contract import Context, PyTree
from fdgjax.door import door
from fdgjax.engine import State, each_seed
from fdgjax.errors import UserError
from fdgjax.evaluation.features import features_of_rows
from fdgjax.evaluation.shift import Samples, covariance, mean_gradient, mutual_information, pairs_of_a_class
from fdgjax.run.reopen import reopen
from fdgjax.sealed import write_checked_json

PAIRS = 5000


@door
def main(argv: Sequence[str]) -> int:
    """Runs the command.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    args = parse(argv)
    experiment, state, _ = reopen(args.run, args.data_dir)
    found = measure_pairs(experiment, each_seed(state, experiment.config.seeds)[0], args.batches, args.repeats)
    write_checked_json(args.run / "domain_shift.json", found)
    show(found)
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="fdgjax shift", description=str(__doc__).partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the run")
    parser.add_argument("--batches", type=int, default=20, help="minibatches for each gradient")
    parser.add_argument("--repeats", type=int, default=5, help="gradients per domain, for their deviation")
    return parser.parse_args(argv[1:])


def measure_pairs(experiment: Experiment, state: State, batches: int, repeats: int) -> dict[str, Any]:
    """Covariance of gradients and mutual information of features, for each pair of domains; see the module.

    Gradients are taken at the variables from which the first client starts its next round, features from the variables
    that predict for it. Samples are paired by class; labels serve this figure alone.

    Args:
      experiment, state: of one seed.
      batches: minibatches per gradient. repeats: gradients per domain.

    Raises:
      UserError: a method whose clients prepare labels first.
    """
    data, rng = experiment.data, np.random.default_rng(experiment.config.seed)
    rows = {name: np.flatnonzero(data.domains == i) for i, name in enumerate(data.domain_names)}
    gradients = gradients_of(experiment, state, rows, (repeats, batches), rng)
    first = experiment.method.predict(state.server, jax.tree.map(lambda leaf: leaf[0], state.clients))
    evaluated, size = [(first, own) for own in rows.values()], experiment.config.eval_batch_size
    found = features_of_rows(experiment.model, experiment.federation, evaluated, size)
    features = dict(zip(rows, found, strict=True))
    pairs = []
    for one, other in itertools.combinations(rows, 2):
        left, right = pairs_of_a_class(rng, data.labels[rows[one]], data.labels[rows[other]], PAIRS)
        both = list(zip(gradients[one], gradients[other], strict=True))
        pairs.append(
            {
                "domains": [one, other],
                "covariance": [covariance(a, b) for a, b in both],
                "correlation": [covariance(a, b) / math.sqrt(covariance(a, a) * covariance(b, b)) for a, b in both],
                "mutual_information": mutual_information(features[one][left], features[other][right]),
            }
        )
    return {"round": int(state.round), "target": experiment.facts["target"], "pairs": pairs}


def gradients_of(
    experiment: Experiment,
    state: State,
    rows: Mapping[str, np.ndarray],
    counts: tuple[int, int],
    rng: np.random.Generator,
) -> dict[str, list[PyTree]]:
    """Mean gradients of each domain; the n-th gradients of all domains share their random augmentation.

    Args:
      experiment, state: of one seed.
      rows: positions of each domain's samples.
      counts: gradients per domain, and minibatches per gradient.
      rng: draws the minibatches.

    Raises:
      UserError: see `measure_pairs`.
    """
    method, data = experiment.method, experiment.data
    if method.prepare is not None:
        raise UserError(
            f"method '{experiment.config.method.name}' prepares labels before it trains; expected a run of a method "
            "whose loss needs nothing but a batch, such as fedsimclr or fedavg"
        )
    client = jax.tree.map(lambda leaf: leaf[0], state.clients)
    sent = method.send(state.server, client)
    received = method.start(sent, client)
    context = Context(sent, client, received, state.round)
    gradient = jax.jit(lambda samples, key: mean_gradient(method.objective, received, context, samples, key))
    found: dict[str, list[PyTree]] = {name: [] for name in rows}
    for repeat, name in itertools.product(range(counts[0]), rows):
        taken = rng.choice(rows[name], (counts[1], experiment.config.batch_size))
        images = np.asarray(experiment.federation.images[jnp.asarray(taken, jnp.int32)])
        samples = Samples(images, data.labels[taken].astype(np.int32))
        found[name].append(jax.device_get(gradient(samples, jax.random.key(repeat))))
    return found


def show(found: Mapping[str, Any]) -> None:
    """The table of pairs, the nearest domains first."""
    table = Table("domains", "mutual information", "covariance of gradients", "their correlation")
    for pair in sorted(found["pairs"], key=lambda pair: -pair["mutual_information"]):
        table.add_row(
            " and ".join(pair["domains"]),
            f"{pair['mutual_information']:.3f}",
            *(f"{np.mean(pair[key]):.3g} ± {np.std(pair[key]):.1g}" for key in ("covariance", "correlation")),
        )
    Console().print(table)
