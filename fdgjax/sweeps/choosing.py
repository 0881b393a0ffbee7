"""The runs from which a method is chosen: each candidate with each training domain unseen in turn.

A true target, if there is one, is excluded from all of them (`data.excluded`).
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from fdgjax.config import Config, DataConfig, read_config
from fdgjax.config.presets import PRESETS
from fdgjax.data.protocol_parts import DEALT, domains_in_use
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.evaluation.selection import ORACLE
from fdgjax.experiments import fit_model, found_data, unsplit_encoding
from fdgjax.experiments.chosen_data import chosen_data
from fdgjax.methods import METHODS, Entry
from fdgjax.models.pretrained.convert import read_weights
from fdgjax.sweeps.cells import Cell, as_name
from fdgjax.sweeps.grid import figures_of
from fdgjax.sweeps.space import Search, drawn_at_random, space_of, with_idle
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup
from fdgjax.utils.words import quoted, words_of

REFERENCE = "fedavg"
"""The method from which differences are shown."""


class Candidate(NamedTuple):
    """A method with its settings.

    name: unique. config: of its runs, without an unseen domain. values: the hyperparameters that were drawn, empty for
    the config's own.
    """

    name: str
    config: ConfigDict
    values: Mapping[str, Any]


class Choosing(NamedTuple):
    """A choice to be made.

    candidates: those compared. unfit: why others are not, by method. domains: each is unseen in turn; a labelled
    server's own domain never is.
    target: the domain that stays out of all runs of the choice, '' for none.
    """

    candidates: list[Candidate]
    unfit: dict[str, str]
    domains: list[str]
    target: str


def default_methods(protocol: str) -> list[str]:
    """The methods that may be candidates by their labels: those that learn from labels where the protocol has them, at
    the clients or at the server alone, and do not gather the data in one place."""
    at_server = PROTOCOLS[protocol].labelled_server
    return [
        name
        for name, entry in METHODS.items()
        if (entry.protocol == "labelled_server") == at_server
        and not entry.unlabelled
        and not entry.pooled(entry.hyper(name=name))
    ]


def protocol_of(preset: str, keys: Mapping[str, str]) -> str:
    """The protocol that a choice's keys set, else its preset's, else the one that methods start from."""
    of_preset = PRESETS.get(preset, {}).get("data", {}).get("protocol", DataConfig().protocol)
    return keys.get("data.protocol", of_preset)


def choosing_of(configs: Sequence[ConfigDict], target: str, *, draws: int = 0, only_fit: bool = False) -> Choosing:
    """The choice among configs, one for each method.

    Args:
      configs: of the same data.
      target: the true target, '' for none.
      draws: draws of each method's declared search values, as further candidates.
      only_fit: whether methods that do not fit the network or the number of clients are left out, as those that nobody
        asked for should be; also those that would compute frozen stages in every step.

    Raises:
      UserError: a negative number of draws, an invalid config, an unknown target or server, fewer than two domains
        besides these, a protocol without an unseen domain, a method without labels, one that was asked for and does not
        fit, or none that does.
    """
    if draws < 0:
        raise UserError(f"choose got search={draws}; expected a number of draws, or 0 for none")
    first = read_config(configs[0])
    served = [config for config in configs if PROTOCOLS[config.data.protocol].labelled_server]
    domains, server = check_domains(first, target, served[0].data.server if served else None)
    excluded = ",".join(map(quoted, filter(None, (*words_of(configs[0].data.excluded), target))))
    unfit, candidates = dict[str, str](), list[Candidate]()
    may_not_fit = only_fit or any(is_particular(METHODS[config.method.name]) for config in configs)
    data = chosen_data(first.data, first.task) if may_not_fit else None
    for given in configs:
        config = given.copy_and_resolve_references()
        config.data.target, config.data.excluded = domains[0], excluded
        if PROTOCOLS[config.data.protocol].labelled_server:
            config.data.server = server
        typed = read_config(config)
        refuse(typed)
        if data is not None and (reason := (why_unfit if only_fit else misfit)(typed, data, domains)):
            if not only_fit:
                raise UserError(reason)
            unfit[typed.method.name] = reason
            continue
        candidates += [Candidate(typed.method.name, config, {}), *drawn_candidates(config, draws)]
    if not candidates:
        raise UserError(f"choose found no method that fits: {'; '.join(unfit.values())}; expected --methods that do")
    return Choosing(candidates, unfit, domains, target)


def check_domains(config: Config, target: str, server: str | None) -> tuple[list[str], str]:
    """The domains that are unseen in turn, and the server's, which never is; raises like `choosing_of`.

    server: the domain of a labelled server, '' for the first that takes part; None without such a server.
    """
    names = found_data(config.data, config.task).domain_names
    excluded = words_of(config.data.excluded)
    if target:
        lookup("domain of data.target", target, dict.fromkeys(names))
    taking_part = [name for name in names if name not in {target, *excluded}]
    if server is not None and taking_part:
        server = lookup("domain of data.server", server or taking_part[0], {name: name for name in taking_part})
    domains = [name for name in taking_part if name != server]
    if len(domains) < 2:
        besides = f", besides the server's {server}" if server else ""
        raise UserError(
            f"choose got {len(domains)} training domains, {', '.join(domains)}{besides}; expected at least two, of "
            "which each is left out in turn, and better four"
        )
    return domains, server or ""


def refuse(config: Config) -> None:
    """Raises a `UserError` for a config whose runs have no accuracy on an unseen domain."""
    if not PROTOCOLS[config.data.protocol].unseen:
        raise UserError(
            f"choose got data.protocol={config.data.protocol}, which has no unseen domain; expected leave_one_out or "
            "unseen_client"
        )
    if METHODS[config.method.name].unlabelled:
        raise UserError(
            f"choose got '{config.method.name}', which learns without labels and is measured by probes with labels of "
            "the unseen domain; expected methods that learn from labels"
        )
    if config.selection == ORACLE:
        raise UserError("choose got config.selection=oracle, which looks at the unseen domain; expected last")


def least_clients(config: Config, data: Domains, domains: Sequence[str]) -> int:
    """The least number of clients that train while one of the domains is unseen."""
    others = len(domains) - 1
    if data.owners is None:
        return config.data.clients or others
    used = domains_in_use(data)
    own = [np.unique(data.owners.numbers[used == data.domain_names.index(name)]) for name in domains]
    return min(len(np.unique(np.concatenate(each))) for each in itertools.combinations(own, others))


def why_unfit(config: Config, data: Domains, domains: Sequence[str]) -> str:
    """Why a method cannot be, or should not be, a candidate; '' if it can."""
    entry, model = METHODS[config.method.name], config.model
    if lack := entry.lacks(config.method):
        return f"method '{entry.name}' got no {lack}, without which it is not worth comparing"
    if model.frozen and model.keep_features and entry.pixels(config.method):
        return f"method '{entry.name}' needs images, and would compute the frozen stages in every step"
    return misfit(config, data, domains)


def is_particular(entry: Entry) -> bool:
    """Whether a method needs parts of its network or its federation; others take any."""
    return bool(entry.unit or entry.head or entry.needs)


def misfit(config: Config, data: Domains, domains: Sequence[str]) -> str:
    """Why a method cannot train the network on these data; '' if it can."""
    entry, model = METHODS[config.method.name], config.model
    if not is_particular(entry):
        return ""
    try:
        weights = read_weights(model.pretrained, model.name, model.unit or entry.unit) if model.pretrained else None
        clients = least_clients(config, data, domains)
        fit_model(config, entry, data, unsplit_encoding(data), weights, clients, len(domains) - 1)
    except UserError as error:
        return str(error)
    return ""


def drawn_candidates(config: ConfigDict, draws: int) -> list[Candidate]:
    """Candidates with values drawn from those that the method declares, no two alike."""
    name = config.method.name
    search = Search(config, space_of(config, []), Path(), draws + 1, 0, False, ())
    generator, seen = random.Random(name), [search.own]
    while len(seen) < search.total:
        if (values := drawn_at_random(search, generator)) not in seen:
            seen.append(values)
    candidates = []
    for number, values in enumerate(seen[1:], start=1):
        chosen = config.copy_and_resolve_references()
        chosen.method.update(with_idle(search, values))
        candidates.append(Candidate(f"{name}_{number}", chosen, values))
    return candidates


def cells_of(choosing: Choosing) -> list[Cell]:
    """The runs: all domains of one candidate, which can train as one program, then of the next."""
    cells = []
    for candidate in choosing.candidates:
        for domain in choosing.domains:
            config = candidate.config.copy_and_resolve_references()
            config.data.target = domain
            figures = figures_of(config)
            cells.append(Cell(run_name(candidate.name, domain), config, figures, candidate.name))
    return cells


def run_name(candidate: str, domain: str) -> str:
    """The name of a candidate's run with a domain unseen."""
    return f"{candidate}-{as_name(domain)}"


def trained_config(config: ConfigDict, target: str) -> ConfigDict:
    """A candidate's config for training after the choice, with one seed: on all domains but the target, on which it is
    tested; without one on all domains, of which each client keeps a part for validation and a part for the test
    (`every_domain`).

    Raises:
      UserError: no target, where the server holds a domain, so that there is nothing to test on.
    """
    chosen = config.copy_and_resolve_references()
    chosen.seeds, chosen.data.target = 1, target
    chosen.data.excluded = ",".join(quoted(name) for name in words_of(chosen.data.excluded) if name != target)
    if not target:
        if PROTOCOLS[chosen.data.protocol].labelled_server:
            raise UserError("--train got a server with labels and no target; expected --config.data.target=DOMAIN")
        defaults = DataConfig()
        chosen.data.protocol = "every_domain"
        chosen.data.update({key: getattr(defaults, key) for key in (*DEALT, "shots")})
    return chosen
