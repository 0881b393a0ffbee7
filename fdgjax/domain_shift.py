"""Do gradients agree less the further domains are apart? (FedGaLA, Theorem 1 and Figure 2)

    python -m fdgjax.domain_shift RUN [--data_dir DATA] [--batches 20] [--repeats 5]

For each pair of domains of a run's data, the unseen one included, at the run's newest state: the covariance of the
gradients of its loss, and the mutual information of its model's features. The table is printed and kept in
`RUN/domain_shift.json`, from which a report draws the figure.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from fdgjax.contract import Context, PyTree
from fdgjax.engine import State, each_seed
from fdgjax.errors import UserError
from fdgjax.evaluation.features import features_of_rows
from fdgjax.evaluation.shift import Samples, covariance, mean_gradient, mutual_information, pairs_of_a_class
from fdgjax.experiment import Experiment
from fdgjax.files import write_json
from fdgjax.run.reopen import reopen

PAIRS = 5000


def main(argv: Sequence[str]) -> int:
    """Measures and shows a run's domains.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    args = parse(argv)
    try:
        experiment, state, _ = reopen(args.run, args.data_dir)
        found = measure_pairs(experiment, each_seed(state, experiment.config.seeds)[0], args.batches, args.repeats)
    except UserError as error:
        print(f"fdgjax: {error}", file=sys.stderr)
        return 2
    write_json(args.run / "domain_shift.json", found)
    show(found)
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m fdgjax.domain_shift", description=str(__doc__).partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--data_dir", default="", help="where the data lie, if elsewhere than for the run")
    parser.add_argument("--batches", type=int, default=20, help="minibatches for each gradient")
    parser.add_argument("--repeats", type=int, default=5, help="gradients of each domain, for the deviation")
    return parser.parse_args(argv[1:])


def measure_pairs(experiment: Experiment, state: State, batches: int, repeats: int) -> dict[str, Any]:
    """Covariance of gradients and mutual information of features, for each pair of domains; see the module.

    Both are of what the first client starts its next round from. Samples are paired by class, which looks at labels,
    for this figure alone.

    Args:
      experiment, state: of one seed.
      batches: for each gradient. repeats: gradients.

    Raises:
      UserError: a method whose clients prepare labels first.
    """
    data, rng = experiment.data, np.random.default_rng(experiment.config.seed)
    rows = {name: np.flatnonzero(data.domains == i) for i, name in enumerate(data.domain_names)}
    gradients = gradients_of(experiment, state, rows, (repeats, batches), rng)
    first = experiment.method.predict(state.server, jax.tree.map(lambda leaf: leaf[0], state.clients))
    judged, size = [(first, own) for own in rows.values()], experiment.config.eval_batch_size
    features = dict(zip(rows, features_of_rows(experiment.model, experiment.federation, judged, size), strict=True))
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
    many: tuple[int, int],
    rng: np.random.Generator,
) -> dict[str, list[PyTree]]:
    """The mean gradients of each domain: so many, each over so many minibatches; the n-th of all domains with the same
    random augmentation.

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
    for repeat, name in itertools.product(range(many[0]), rows):
        taken = rng.choice(rows[name], (many[1], experiment.config.batch_size))
        samples = Samples(data.images[taken], data.labels[taken].astype(np.int32))
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


if __name__ == "__main__":
    sys.exit(main(sys.argv))
