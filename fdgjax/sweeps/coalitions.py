"""The runs of all coalitions of clients, or of those that some random orders of the clients pass through."""

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from fdgjax.config import read_config
from fdgjax.config.schema import DataConfig
from fdgjax.data.numeric_labels import TASKS
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import splits_of_images
from fdgjax.data.sources.source import Source
from fdgjax.evaluation.shapley import Coalition, all_coalitions, prefixes
from fdgjax.experiments import found_data
from fdgjax.methods import METHODS
from fdgjax.sweeps.cells import Cell, as_name
from fdgjax.sweeps.grid import figures_of
from fdgjax.utils.errors import UserError, unknown
from fdgjax.utils.words import quoted, words_of

EXACT = 6
"""The most clients of which all coalitions are trained."""
ORDERS = 20
"""The default number of random orders of more clients."""


LONGEST_NAME = 200
"""The most bytes of a folder's name; file systems take 255, and files of notes have its name with an ending."""


class Coalitions(NamedTuple):
    """clients: the domains that are clients. target: the unseen domain, '' for none. classes: their number.
    orders: of the clients, drawn at random; none if all coalitions are trained. cells: a run for each coalition."""

    clients: tuple[str, ...]
    target: str
    classes: int
    orders: list[list[int]]
    cells: dict[Coalition, Cell]


def coalitions_of(config: ConfigDict, orders: int = 0) -> Coalitions:
    """The coalitions of a config's clients, one for each domain that it trains on.

    An absent client's domain is excluded (`config.data.excluded`): the federation is that of data without the domain.

    Args:
      config: of the federation of all clients.
      orders: how many random orders of the clients; 0 for all coalitions, or, of more than `EXACT` clients, for
        `ORDERS`. The orders depend on nothing but the number of clients.

    Raises:
      UserError: a negative number of orders, a method or protocol without labels at the clients, clients that do not
        each hold one domain, or data that cannot be found.
    """
    if orders < 0:
        raise UserError(f"contributions got orders={orders}; expected a number from 1, or 0 for the default")
    asked, data = read_config(config), config.data
    protocol = PROTOCOLS[data.protocol]
    if METHODS[config.method.name].unlabelled or protocol.labelled_server:
        raise UserError(
            f"contributions got '{config.method.name}' by the protocol '{data.protocol}', whose clients have no "
            "labels; expected a method that trains on theirs, such as fedavg"
        )
    if TASKS[asked.task].numeric:
        raise UserError(f"contributions got config.task={asked.task}, but shares accuracy out; expected classification")
    found = found_data(asked.data, asked.task)
    out = words_of(data.excluded)
    if wrong := [name for name in (*out, *filter(None, [data.target])) if name not in found.domain_names]:
        raise unknown("domain", wrong[0], found.domain_names)
    names = [name for name in found.domain_names if name not in out]
    target = (data.target or names[0]) if protocol.unseen and names else ""
    clients = tuple(name for name in names if name != target)
    if asked.data.clients not in (0, len(clients)) or data.domains_per_client != 1 or data.homogeneity >= 0:
        raise UserError(
            f"contributions got data.clients={data.clients}, data.domains_per_client={data.domains_per_client} and "
            f"data.homogeneity={data.homogeneity:g}; expected a client for each domain, data.clients=0 and the defaults"
        )
    if asked.data.owner or (isinstance(found, Domains) and found.owners is not None):
        raise UserError(
            "contributions got data that say which client has each sample; expected a client for each domain, to be "
            "left out as a whole; leave the owners out"
        )
    if "test" not in protocol.takes:
        check_tests(found, asked.data, clients)
    drawn = drawn_orders(len(clients), orders)
    everybody = frozenset(range(len(clients)))
    chosen = {*prefixes(drawn), everybody, *(everybody - {i} for i in everybody)} if drawn else ()
    each = sorted(chosen, key=lambda one: (len(one), sorted(one))) or all_coalitions(len(clients))
    cells = {one: cell_of(config, target, clients, out, one) for one in each if one}
    return Coalitions(clients, target, len(found.class_names), drawn, cells)


def check_tests(data: Source | Domains, where: DataConfig, clients: Sequence[str]) -> None:
    """Raises a `UserError` where some clients alone have samples for tests: the others get no accuracy beside them."""
    if isinstance(data, Domains):
        splits, domains = data.splits, np.array(data.domain_names)[data.domains]
    else:
        splits = splits_of_images(data, where.name, where.split)
        domains = np.array([name.partition("/")[0] for name in data.names])
    if splits is None:
        return
    lacking = [name for name in clients if not len(splits.of_source(np.flatnonzero(domains == name))[2])]
    if 0 < len(lacking) < len(clients):
        raise untested(lacking[0])


def untested(domain: str) -> UserError:
    """The error for a client without an accuracy of its own."""
    return UserError(
        f"contributions got splits that have no sample of '{domain}' for tests, and have some of others; expected some "
        "of each domain, or of none"
    )


def drawn_orders(clients: int, orders: int) -> list[list[int]]:
    """Random orders of the clients, all of them if they are no more than asked for; see `coalitions_of`."""
    count = orders or (ORDERS if clients > EXACT else 0)
    if count >= math.factorial(clients):
        return [list(order) for order in itertools.permutations(range(clients))]
    rng = np.random.default_rng(clients)
    return [rng.permutation(clients).tolist() for _ in range(count)]


def cell_of(
    config: ConfigDict, target: str, clients: tuple[str, ...], out: Sequence[str], coalition: Coalition
) -> Cell:
    """The run of a coalition; `out`: what the config itself excludes."""
    changed = config.copy_and_resolve_references()
    changed.data.clients = 0
    changed.data.target = target
    changed.data.excluded = ",".join(
        map(quoted, [*out, *(name for i, name in enumerate(clients) if i not in coalition)])
    )
    return Cell(coalition_name(clients, coalition), changed, figures_of(changed))


def coalition_name(clients: Sequence[str], coalition: Coalition) -> str:
    """The members' names, as a folder's; of names too long for one, their number and a digest."""
    name = "+".join(as_name(clients[i]) for i in sorted(coalition))
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return name if len(name.encode()) <= LONGEST_NAME else f"{len(coalition)}_of_{len(clients)}-{digest}"
