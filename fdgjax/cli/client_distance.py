"""How far apart the clients' models of a trained run are, and which classes they predict.

    fdgjax apart RUN [RUN ...] [--data_dir DATA]

It measures, at each run's newest checkpoint, the distance between the clients' models: the mean of `||w_i - w_j||`
over all pairs, divided by the mean of `||w_i||`, w being all parameters. It also measures the accuracy of each client's
model, of the mean of their parameters and, if the server keeps a hypernetwork, of the model generated from the mean
embedding. `id` is the accuracy of a client's model on that client's held-out data; for the latter two models it is the
mean over all clients. `ood` is the accuracy on the unseen domain. A model whose `ood` is near the share of one class
may predict only that class: the most predicted class and its share stand beside it. A table for each run is printed
and written to `RUN/apart.json`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from fdgjax.inference.client_models import compare
from fdgjax.inference.trained_run import TrainedRun, open_trained
from fdgjax.run.console import Console
from fdgjax.utils.checksums import write_checked_json
from fdgjax.utils.command import command, parser_of
from fdgjax.utils.errors import UserError


@command
def main(argv: Sequence[str]) -> int:
    """Compares the models of each run.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = parser_of("apart", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--data_dir", default="", help="folder of the data, if it has moved since the run")
    args = parser.parse_args(argv[1:])
    for run in args.runs:
        trained = open_trained(run, args.data_dir)
        refuse_representations(run, trained)
        found = compare(trained)
        write_checked_json(run / "apart.json", found)
        show(run, found)
    return 0


def refuse_representations(run: Path, trained: TrainedRun) -> None:
    """Raises a `UserError` for a run whose clients have no models that predict classes."""
    if not trained.classifies or trained.experiment.method.pooled:
        raise UserError(
            f"{run} is a run of '{trained.experiment.config.method.name}'; expected one whose clients have models that "
            "classify"
        )


def show(run: Path, found: Mapping[str, Any]) -> None:
    """Prints the table of a run's models."""
    majority = "" if found["target_majority"] is None else f"; its largest class: {found['target_majority']:.3f}"
    title = f"{run}: models {found['distance']:.4f} apart; unseen: {found['target'] or 'nothing'}{majority}"
    table = Table("model", "id", "ood", "most predicted", title=title)
    for name, one in found["models"].items():
        unseen = (f"{one['ood']:.3f}", f"{one['most_predicted']} {one['share']:.3f}") if "ood" in one else ("", "")
        table.add_row(name, f"{one['id']:.3f}", *unseen)
    Console().show(table)
