"""The server's part of an evaluation: it asks the nodes for counts, and puts these together as if one program had
evaluated all models, so that its figures are a simulation's.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fdgjax.deploy.evaluation import SMALLEST, has_predictions
from fdgjax.deploy.leaves import Leaves, by_path, checked_tree, prefixed, without_prefix
from fdgjax.deploy.node import NEVER
from fdgjax.deploy.node_figures import PREFIX, check_figures, figures_in, without_value
from fdgjax.deploy.privacy import guards_samples
from fdgjax.deploy.requests import requests_of, sent_to, unseen_models
from fdgjax.deploy.server import DeployedState, ServerPrograms
from fdgjax.deploy.terms import Terms, to_words
from fdgjax.deploy.wire import GROUPS, OWN, SELECTED, UNSEEN, WORKDIR, Fact, Reply, Request, Say, Transport
from fdgjax.evaluation.metrics import Metrics, Record, accuracy_by_client, figures, measure
from fdgjax.evaluation.tally import BINS, Tallies, Tally
from fdgjax.run.selected import chosen_round, keeps_state
from fdgjax.utils.errors import UserError

OF_UNSEEN = "unseen_model_client_accuracy"
"""A record's key: the accuracy of the model for an unseen domain on each client's own held-out samples."""
COUNTED = "evaluated_samples"
"""A record's key: how many samples each figure was counted on, by table and party."""
GROUPED = "evaluated_groups"
"""A record's key: of how many groups these samples were, where they are grouped."""
ByTable = Mapping[str, Mapping[str, int]]
"""Numbers of samples, or of groups, by table and party."""
SAME_VERSION = "install the server's version of fdgjax at the node"
FEWER = (
    f"it evaluates on fewer samples, or groups of samples, than `smallest` in its node-config (by default {SMALLEST})"
)
"""Why a node sends no counts or figures, which stays its own choice."""


def domain_names(terms: Terms) -> tuple[str, ...]:
    """The names of the parties' domains in records and reports."""
    return tuple(f"client{party}" for party in range(terms.parties))


def make_evaluation(
    server: ServerPrograms, transport: Transport, deadline: float, records: Sequence[Record], say: Say, name: str
) -> Callable[[DeployedState], Record]:
    """The evaluation of a state at the nodes: its figures, for the round's record.

    Args:
      server, transport: of the run. deadline: see `fdgjax.deploy.rounds.Policy`.
      records: of the rounds before, by which a model is selected so far.
      say: what is told of nodes that send nothing.
      name: of the server's folder, see `WORKDIR`.
    """
    terms, known = server.agreed.terms, server.knows_unseen
    # No noise covers counts: nodes that protect their samples send none.
    silent = not has_predictions(terms) or guards_samples(terms.config)
    asked = [*(() if silent else range(terms.clients))]

    def evaluate(held: DeployedState) -> Record:
        models = by_path(unseen_models(server, held)) if known else {}
        shared = prefixed(UNSEEN, models)
        each = [prefixed(OWN, sent_to(server, held, client)) | shared for client in asked]
        chosen = chosen_round(records, terms.config) if keeps_state(terms.config.selection) else None
        selected = NEVER if chosen is None else chosen
        more: Mapping[str, Fact] = {SELECTED: selected, WORKDIR: name}
        requests = requests_of(server, held, "evaluate", asked, each, more)
        if terms.unseen is not None and known:
            facts: Mapping[str, Fact] = {"round": int(held.state.round), "accepted": NEVER, "elsewhere": "[]"}
            requests.append(Request("evaluate", terms.unseen, to_words(terms), shared, {**facts, **more}))
        if not requests:
            return {}
        count = len(next(iter(models.values()))) if models else 1
        told = [plausible(reply, terms, count) for reply in transport.exchange(requests, deadline)]
        for reply in told:
            if reply.error and not deadline:
                raise UserError(f"client {reply.client}: {reply.error}")
            if withheld := reply.error or too_few(str(reply.facts.get("withheld", ""))):
                say(f"client {reply.client} sends no figures: {withheld}")
            elif lacking := without_value(reply.arrays, terms):
                say(f"client {reply.client} sends no {', '.join(lacking)}: for a class that they need {FEWER}")
        replies = {reply.client: reply.arrays for reply in told if not reply.error}
        groups = {reply.client: groups_in(reply, terms) for reply in told if not reply.error}
        sizes = {COUNTED: by_table({party: sample_counts(own) for party, own in replies.items()})}
        sizes |= {GROUPED: by_table(groups)}
        return {**figures_of(replies, terms, count), **{key: found for key, found in sizes.items() if found}}

    return evaluate


def plausible(reply: Reply, terms: Terms, models: int) -> Reply:
    """A reply to a request to evaluate, with an error instead where it has no figures of the terms' method; `models`
    is the number of models for an unseen domain."""
    try:
        if has_predictions(terms):
            tables = {"source": 1, "test": 1, "target": models, "adapted": models}
            check_figures(reply.arrays, terms, tables)
            check_counts({path: leaf for path, leaf in reply.arrays.items() if not path.startswith(PREFIX)}, tables)
            groups_in(reply, terms)
        else:
            check_probes(reply.arrays)
    except UserError as error:
        return Reply(reply.client, {}, {}, reply.error or str(error))
    return reply


def counts_like(tables: Mapping[str, int]) -> Leaves:
    """The counts of tables in a reply, by path; the tables' numbers of models by their names in `Tallies`."""
    return {
        path: leaf
        for table, models in tables.items()
        for path, leaf in prefixed(f".{table}", by_path(tally_at({}, table, models))).items()
    }


def check_counts(arrays: Leaves, tables: Mapping[str, int]) -> None:
    """Raises a `UserError` for counts of other shapes than `counts_like`, and for more correct ones than there are. The
    sums of a model that diverged are not finite, and are no counts."""
    like = counts_like(tables)
    if unknown := [path for path in arrays if path not in like]:
        raise UserError(f"its evaluation has '{unknown[0]}'; expected counts of {', '.join(tables)}; {SAME_VERSION}")
    for table, models in tables.items():
        found = tally_at(arrays, table, models)
        for correct, total in ((found.correct, found.total), (found.bin_correct, found.bin_count)):
            if not np.all((correct >= 0) & (correct <= total) & (total < np.inf)):
                raise UserError(
                    f"its evaluation has {np.sum(correct):g} of {np.sum(total):g} samples right in '{table}'; expected "
                    "finite counts, and of no more samples than there are; see the node's program"
                )


def check_probes(arrays: Leaves) -> None:
    """Raises a `UserError` for figures that are not those of linear probes, numbers from 0 to 1."""
    for path, value in arrays.items():
        name, _, percent = str(path).partition("/")
        known = name.startswith("probe_") and name in Metrics._fields and bool(percent) == name.endswith("_by_percent")
        if not known or np.shape(value) or value.dtype != np.float64 or not 0 <= value <= 1:
            raise UserError(f"its evaluation has '{path}'; expected accuracies of probes, from 0 to 1; {SAME_VERSION}")


def too_few(withheld: str) -> str:
    """Why a node sends no counts of some of its tables, by their names in `Tallies`; '' for no such tables."""
    return f"{FEWER}: {withheld}" if withheld else ""


def sample_counts(arrays: Leaves) -> dict[str, int]:
    """How many samples were counted, by table."""
    totals = {path.split(".")[1]: total for path, total in arrays.items() if path.endswith(".total")}
    return {table: int(np.sum(np.asarray(total)[0])) for table, total in totals.items()}


def groups_in(reply: Reply, terms: Terms) -> dict[str, int]:
    """Of how many groups these samples were, by table; nothing where they are not grouped.

    Raises:
      UserError: no number for a table, or more groups than samples.
    """
    if not terms.config.data.group or not has_predictions(terms) or reply.error:
        return {}
    samples = sample_counts(reply.arrays)
    try:
        found = json.loads(str(reply.facts.get(GROUPS)))
    except (ValueError, RecursionError):
        found = None
    if (
        not isinstance(found, dict)
        or found.keys() != samples.keys()
        or not all(type(number) is int and 0 < number <= samples[table] for table, number in found.items())
    ):
        raise UserError(
            f"its evaluation has no numbers of groups for its counts of {', '.join(samples)}; expected one "
            f"for each of them, of no more groups than samples; {SAME_VERSION}"
        )
    return found


def by_table(each: Mapping[int, Mapping[str, int]]) -> ByTable:
    """Numbers of parties' tables, by table and party."""
    found: dict[str, dict[str, int]] = {}
    for party, sizes in sorted(each.items()):
        for table, size in sizes.items():
            found.setdefault(table, {})[str(party)] = size
    return found


def probe_metrics(arrays: Leaves) -> Metrics:
    """The figures of linear probes that the unseen party sent."""
    plain: dict[str, Any] = {}
    for path, value in arrays.items():
        name, _, percent = path.partition("/")
        if percent:
            plain.setdefault(name, {})[percent] = float(value)
        else:
            plain[name] = float(value)
    return Metrics(**plain)


def figures_of(replies: Mapping[int, Leaves], terms: Terms, models: int) -> dict[str, Any]:
    """The figures of a round, as a simulation records them, from the counts of the parties that sent some.

    Args:
      replies: counts by party. terms: of the federation. models: the number of models for an unseen domain.
    """
    if not any(replies.values()):
        return {}
    if not has_predictions(terms):
        return figures(probe_metrics(next(iter(replies.values()))))
    found = together(replies, terms, models)
    plain = figures(measure(found, domain_names(terms)))
    own_accuracy = by_party(plain.pop("client_accuracy", {}), terms)
    shown = {place: tally_at(replies.get(party, {}), "target", models) for place, party in enumerate(terms.trained)}
    own = {
        terms.trained[place]: accuracies for place, tally in shown.items() if (accuracies := accuracy_by_client(tally))
    }
    of_unseen = {str(party): float(np.mean(list(each.values()))) for party, each in own.items()}
    by_client = {"client_accuracy": own_accuracy, OF_UNSEEN: of_unseen}
    of_probabilities = figures_in(replies, terms, domain_names(terms))
    return {**plain, **{name: figure for name, figure in by_client.items() if figure}, **of_probabilities}


def by_party(figure: Mapping[str, float], terms: Terms) -> dict[str, float]:
    """A figure by the engine's number of a client, by the party's number."""
    return {str(terms.trained[int(place)]): value for place, value in figure.items()}


def together(replies: Mapping[int, Leaves], terms: Terms, models: int) -> Tallies:
    """All counts as one program would have made them: source and test `[clients, ...]`, target `[models, ...]`."""

    def of_clients(table: str) -> Tally:
        each = [in_domain(tally_at(replies.get(party, {}), table, 1), party, terms) for party in terms.trained]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *each)

    def of_unseen(table: str) -> Tally:
        return in_domain(tally_at(unseen, table, models), terms.unseen or 0, terms)

    unseen = {} if terms.unseen is None else replies.get(terms.unseen, {})
    adapted = any(path.startswith(".adapted") for path in unseen)
    return Tallies(
        of_clients("source"), of_clients("test"), of_unseen("target"), of_unseen("adapted") if adapted else None
    )


def tally_at(arrays: Leaves, table: str, models: int) -> Tally:
    """The counts of a table in a reply, `[models, ...]`; zeros if it was not sent.

    Raises:
      UserError: counts of other shapes.
    """
    by_domain: Any = np.zeros((models, 1), np.float32)
    by_bin: Any = np.zeros((models, BINS), np.float32)
    loss: Any = np.zeros(models, np.float32)
    nothing = Tally(by_domain, by_domain, by_bin, by_bin, by_bin, loss)
    own = without_prefix(f".{table}", arrays)
    found: Tally = checked_tree(own, nothing, "an evaluation") if own else nothing
    return found


def in_domain(tally: Tally, party: int, terms: Terms) -> Tally:
    """Counts of one domain as those of all parties' domains."""

    def wide(counts: Any) -> Any:
        return np.where(np.arange(terms.parties) == party, counts, np.float32(0))

    return tally._replace(correct=wide(tally.correct), total=wide(tally.total))
