"""Whether choosing a method by left-out domains serves a further domain: keeps the figures of the sweep `choosing`, and
makes the tables of docs/choosing.md from them, which `python -m launch.results` writes.

    python -m launch.choosing runs/choosing/pacs --name pacs      # into benchmarks/results/choose/pacs.csv

For each true target, the candidates' accuracies on the other domains, each left out in turn with the target excluded,
make the choice; the runs with the target alone unseen say what it is worth. The regret of a rule is the best of these
accuracies minus that of the method it chooses, each the mean over the seeds. Methods whose runs are not all finished
are left out.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdgjax.evaluation.best_set import best_set, mean_of_domains, prediction_interval
from fdgjax.run.records import by_seed
from fdgjax.sweeps.cells import SPECS, read_spec
from fdgjax.sweeps.choice import cheapest, figures, not_behind
from fdgjax.sweeps.choice_record import Judged
from fdgjax.sweeps.status import summary_of
from fdgjax.utils.command import command
from fdgjax.utils.markdown import markdown_table
from launch.rows import RESULTS, read_rows, write_rows

FOLDER = RESULTS / "choose"
NAMES = {"rotated_digits": "paper", "office_caltech10": "office_caltech10", "pacs": "pacs"}
"""The data sets, and the scales of the sweep."""


class ChoiceRow(NamedTuple):
    """One seed of a run: the left-out domain, and the excluded true target, '' for none. Accuracies in [0, 1]."""

    method: str
    left_out: str
    excluded: str
    seed: int
    id: float
    ood: float
    bytes_per_round: int
    seconds_per_round: float


class Outcome(NamedTuple):
    """A true target: the chosen method, the size of the set that cannot be told from the best, of how many, whether the
    chosen method's accuracy lay in its interval, and the regret of each rule in points."""

    target: str
    chosen: str
    members: int
    methods: int
    inside: bool
    regret: dict[str, float]


RULES = ("`choose`", "best left-out mean", "best id", "always FedAvg", "random", "worst")


@command
def main(argv: Sequence[str]) -> int:
    """Keeps the finished runs' figures.

    Returns:
      The exit status: 0 when done, 2 for a mistake in the input.
    """
    parser = argparse.ArgumentParser(prog="python -m launch.choosing", description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the sweep")
    parser.add_argument("--name", required=True, choices=NAMES, help="the data set")
    args = parser.parse_args(argv[1:])
    keep(args.folder, args.name)
    return 0


def keep(folder: Path, name: str) -> None:
    """Writes the finished runs' figures as `NAME.csv`, with five significant digits."""
    rows = []
    for cell in read_spec(SPECS / "choosing.py", NAMES[name]):
        summary, data = summary_of(folder, cell.name), cell.config.data
        if not summary:
            continue
        cost = summary["bytes_up_per_round"] + summary["bytes_down_per_round"], summary["seconds_per_round"]
        each = zip(by_seed(summary), figures(summary, "id_accuracy"), figures(summary, "ood_accuracy"), strict=True)
        method = cell.config.method.name
        rows += [ChoiceRow(method, data.target, data.excluded, seed, own, ood, *cost) for seed, own, ood in each]
    write_rows(FOLDER / f"{name}.csv", ChoiceRow._fields, rows)


def outcomes(name: str) -> list[Outcome]:
    """What each rule's choice is worth on every true target."""
    kept = read_rows(FOLDER / f"{name}.csv", ChoiceRow)
    domains = sorted({one.left_out for one in kept})
    runs = {(one.method, one.left_out, one.excluded) for one in kept}
    wanted = {(left_out, excluded) for left_out in domains for excluded in ("", *domains) if left_out != excluded}
    methods = [m for m in dict.fromkeys(one.method for one in kept) if all((m, *pair) in runs for pair in wanted)]
    return [outcome(kept, methods, domains, target) for target in domains] if len(methods) > 1 else []


def outcome(kept: Sequence[ChoiceRow], methods: Sequence[str], domains: Sequence[str], target: str) -> Outcome:
    """One true target's; see `outcomes`."""

    def of(method: str, left_out: str, excluded: str) -> list[ChoiceRow]:
        return [one for one in kept if (one.method, one.left_out, one.excluded) == (method, left_out, excluded)]

    others = [domain for domain in domains if domain != target]
    values = np.array([[[one.ood for one in of(m, domain, target)] for domain in others] for m in methods])
    final = [of(m, target, "") for m in methods]
    worth = np.array([np.mean([one.ood for one in own]) for own in final])
    own_domains = np.array([np.mean([one.id for one in own]) for own in final])
    scores = mean_of_domains(values)
    judged = [
        Judged(m, {}, score, None, None, runs[0].bytes_per_round, runs[0].seconds_per_round, {})
        for m, score, runs in zip(methods, scores, [of(m, others[0], target) for m in methods], strict=True)
    ]
    members = best_set(values).members
    chosen = methods.index(cheapest([judged[i] for i in not_behind(values, members)]).name)
    bounds = prediction_interval(list(values[chosen].mean(axis=-1)))
    picks = {
        "`choose`": worth[chosen],
        "best left-out mean": worth[np.argmax(scores)],
        "best id": worth[np.argmax(own_domains)],
        "always FedAvg": worth[methods.index("fedavg")],
        "random": worth.mean(),
        "worst": worth.min(),
    }
    return Outcome(
        target,
        methods[chosen],
        len(members),
        len(methods),
        bounds is not None and bounds[0] <= worth[chosen] <= bounds[1],
        {rule: 100 * float(worth.max() - value) for rule, value in picks.items()},
    )


def regrets(_: str) -> str:
    """The mean regret of each rule on each data set."""
    rows, numbers = [], ["targets", "methods", *RULES, "in the interval"]
    for name in NAMES:
        if found := outcomes(name):
            means = [f"{np.mean([one.regret[rule] for one in found]):.1f}" for rule in RULES]
            inside = f"{sum(one.inside for one in found)} of {len(found)}"
            rows.append([name, str(len(found)), str(found[0].methods), *means, inside])
    return "\n".join([*markdown_table(["data", *numbers], rows, right=numbers), ""])


def regrets_by_target(_: str) -> str:
    """Each target's choice, and the regret of each rule."""
    rows, numbers = [], ["cannot be told apart", *RULES]
    for name in NAMES:
        for one in outcomes(name):
            each = [f"{one.regret[rule]:.1f}" for rule in RULES]
            rows.append([name, one.target, one.chosen, f"{one.members} of {one.methods}", *each])
    return "\n".join([*markdown_table(["data", "target", "chosen", *numbers], rows, right=numbers), ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
