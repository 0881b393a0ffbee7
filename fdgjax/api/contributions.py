"""What each client contributes to a federation, measured by training every coalition of the clients."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fdgjax.evaluation.shapley import Coalition, leave_one_out, shapley_of_orders, shapley_values
from fdgjax.evaluation.statistics import spread
from fdgjax.inference.excluded_domains import excluded_accuracies
from fdgjax.run.batched_runs import LARGEST
from fdgjax.run.console import silent_console
from fdgjax.run.records import by_seed
from fdgjax.sweeps.cells import check_names
from fdgjax.sweeps.coalitions import Coalitions, untested
from fdgjax.sweeps.status import failure_line, summary_of
from fdgjax.sweeps.work import Sweep, begin, work_on_cells
from fdgjax.utils.errors import UserError


class Contributions(NamedTuple):
    """What each client contributes to the accuracy on each domain, by seed.

    clients: the domains that are clients. domains: those with an accuracy: the clients' and the unseen one, `target`.
    accuracies: of each coalition, `[seeds, domains]`; that of nobody is 1 / classes.
    shapley, influence: Shapley values, and the accuracy of all clients minus that without the client,
      `[clients, seeds, domains]`. orders: how many random orders of the clients the values are estimated from; 0 for
      exact values.
    """

    clients: tuple[str, ...]
    domains: tuple[str, ...]
    target: str
    seeds: tuple[int, ...]
    accuracies: Mapping[Coalition, np.ndarray]
    shapley: np.ndarray
    influence: np.ndarray
    orders: int


def train_coalitions(game: Coalitions, out: Path) -> Contributions:
    """Trains the coalitions that are not trained yet, in this process, and measures their clients' contributions.

    Raises:
      UserError: a coalition whose run failed, or whose folder holds another experiment, or two of one folder's name.
    """
    cells = list(game.cells.values())
    check_names(cells)
    sweep = Sweep(cells, cells, out, {}, together=LARGEST)
    begin(sweep)
    work_on_cells(sweep, silent_console(), threading.Event())
    return read_contributions(game, out)


def read_contributions(game: Coalitions, out: Path) -> Contributions:
    """The contributions of the clients, from the finished runs of all coalitions below a folder.

    Raises:
      UserError: a coalition that has failed, or is not finished.
    """
    domains = (*game.clients, *([game.target] if game.target else []))
    each = {one: accuracies_in(out, cell.name, domains, cell.config.data.dir) for one, cell in game.cells.items()}
    everybody = each[frozenset(range(len(game.clients)))]
    values = {frozenset[int](): np.full(np.shape(list(everybody.values())), 1 / game.classes)}
    values |= {one: np.stack(list(own.values())) for one, own in each.items()}
    count = len(game.clients)
    return Contributions(
        game.clients,
        domains,
        game.target,
        tuple(everybody),
        values,
        shapley_of_orders(values, game.orders) if game.orders else shapley_values(values, count),
        leave_one_out(values, count),
        len(game.orders),
    )


def accuracies_in(out: Path, name: str, domains: tuple[str, ...], data_dir: str) -> dict[int, np.ndarray]:
    """A run's accuracies on domains by seed, `[domains]` each: a client's on its held-out images, the unseen domain's,
    and those on all images of domains that took no part."""
    summary = summary_of(out, name)
    if not summary:
        reason = failure_line(out, name) or "it is not finished"
        raise UserError(f"the coalition {out / name} has no result ({reason}); expected all to be trained")
    absent = excluded_accuracies(out / name, data_dir) if summary.get("excluded") else {}
    each = {seed: own["per_domain_accuracy"] | absent.get(str(seed), {}) for seed, own in by_seed(summary).items()}
    if lacking := [domain for domain in domains if any(domain not in own for own in each.values())]:
        raise untested(lacking[0])
    return {seed: np.array([own[domain] for domain in domains]) for seed, own in each.items()}


def as_json(found: Contributions) -> dict[str, Any]:
    """The contributions as plain data: accuracies of the coalitions by domain, a value for each seed; of each client
    and domain Shapley values and influence, mean and standard error over the seeds (None of one seed)."""

    def by_client(values: np.ndarray) -> dict[str, Any]:
        return {
            client: {domain: mean_and_error(own[:, i]) for i, domain in enumerate(found.domains)}
            for client, own in zip(found.clients, values, strict=True)
        }

    def accuracies(values: np.ndarray) -> dict[str, list[float]]:
        return {domain: values[:, i].tolist() for i, domain in enumerate(found.domains)}

    return {
        "clients": list(found.clients),
        "target": found.target,
        "seeds": list(found.seeds),
        "orders": found.orders,
        "shapley": by_client(found.shapley),
        "influence": by_client(found.influence),
        "coalitions": [
            {"clients": [found.clients[i] for i in sorted(one)], "accuracy": accuracies(values)}
            for one, values in found.accuracies.items()
        ],
    }


def mean_and_error(values: np.ndarray) -> dict[str, float | None]:
    """Mean over seeds and its standard error, None of one seed."""
    own = spread(values.tolist())
    assert own is not None, "there is a seed"
    return {"mean": own.mean, "error": None if own.std is None else own.std / own.n**0.5}
