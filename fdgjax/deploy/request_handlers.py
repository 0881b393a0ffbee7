"""A node's request handlers, which work on its own folders; each request may run in a new process."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from fdgjax.deploy.evaluation import Evaluate, make_evaluate, unseen_shapes
from fdgjax.deploy.kept import (
    MODEL,
    facts_of_model,
    facts_of_run,
    keep_model,
    kept_model,
    read_kept,
    refuse_older,
    state_file,
    write_kept,
    write_model,
)
from fdgjax.deploy.leaves import checked_tree, without_prefix
from fdgjax.deploy.message_log import MESSAGES, NODE, RECEIVED, SENT, log_message
from fdgjax.deploy.node import FROM_SERVER, NEVER, Node, answer, make_node, model_of
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.own_samples import count_trained, own_parts, version_of
from fdgjax.deploy.privacy import guard_of_node, refuse_uncovered
from fdgjax.deploy.statistics import of_party
from fdgjax.deploy.terms import Agreed, OwnSamples, agree, federation_of, from_words, no_samples
from fdgjax.deploy.wire import GROUPS, OWN, SELECTED, UNSEEN, Reply, Request
from fdgjax.run.compilation_cache import jax_events
from fdgjax.run.selected import keeps_state
from fdgjax.utils.errors import UserError, system_words
from fdgjax.utils.files import write_bytes
from fdgjax.utils.registry import lookup

START_AGAIN = "start the run again; the node keeps its state"
"""What mends a run that a node's system error ended."""
COMPILED = "/jax/compilation_cache/cache_misses"
"""JAX's monitoring event for a program that is not in its persistent cache."""


class Prepared(NamedTuple):
    """What a node has made for some terms: its training, None for the unseen party, and its evaluation, which
    is made when it is first asked for: a process for a single message needs one of the two."""

    agreed: Agreed
    node: Node | None
    evaluation: Callable[[], Evaluate]


def serve(settings: NodeSettings, request: Request, nodes: dict[str, Prepared] | None = None) -> Reply:
    """The reply to a request, both of which are logged; a `UserError` or a system error, such as a full disk, becomes
    the reply's `error`.

    Args:
      settings: the client's settings.
      request: the server's request.
      nodes: a cache of what is made for some terms, for a process that answers several requests.
    """
    log = settings.states / MESSAGES
    try:
        log_message(log, NODE, RECEIVED, settings.client, request)
        reply = handled(settings, request, nodes)
        log_message(log, NODE, SENT, settings.client, request, reply)
    except UserError as error:
        return Reply(settings.client, {}, {}, str(error))
    return reply


def handled(settings: NodeSettings, request: Request, nodes: dict[str, Prepared] | None) -> Reply:
    """See `serve`; nothing is logged."""
    begin = time.perf_counter()
    try:
        with jax_events(COMPILED) as compiled:
            handle = lookup("action", request.action, ACTIONS)
            refuse_uncovered(request.action, from_words(request.terms), settings.client, settings.epsilon)
            reply = handle(settings, request, {} if nodes is None else nodes)
    except UserError as error:
        return Reply(settings.client, {}, {}, str(error))
    except OSError as error:
        return Reply(settings.client, {}, {}, system_words(error, START_AGAIN))
    facts = {"seconds": time.perf_counter() - begin, "compiled": len(compiled)}
    return reply._replace(facts={**reply.facts, **facts})


def handle_join(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """The number of this client's training samples, 0 for the unseen one; no image is decoded."""
    del nodes
    terms = from_words(request.terms)
    if not 0 <= settings.client < terms.parties:
        raise UserError(
            f"client {settings.client}; expected a number below {terms.parties}; correct client in node-config"
        )
    return Reply(settings.client, {}, {"samples": count_trained(settings.places, terms, settings.client)})


def handle_describe(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """The statistics of the columns of this client's training samples, by which all clients' are standardised."""
    del nodes
    terms = from_words(request.terms)
    own = own_parts(settings.places, terms, settings.client, settings.states)
    return Reply(settings.client, of_party(own.train, terms), {})


def handle_train(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """Trains one round; replies with the message, the message's largest magnitude, the number of samples, and the mean
    loss or, where samples are protected, the epsilon spent. The row stays here."""
    node, file = node_of(settings, request.terms, nodes), state_file(settings, from_words(request.terms))
    round_, accepted = int(request.facts["round"]), accepted_by(settings, request, file)
    elsewhere = frozenset(json.loads(str(request.facts["elsewhere"])))
    refuse_older(file, settings.client, round_, request.run)  # nothing is trained, and no privacy spent, in vain
    made, kept = answer(node, request.arrays, round_, accepted, elsewhere, read_kept(file))
    refuse_older(file, settings.client, round_, request.run)  # a later request may have been answered meanwhile
    write_kept(file, kept._replace(run=request.run))
    told = {"loss": made.loss, "privacy_epsilon": made.epsilon}
    facts = {name: fact for name, fact in told.items() if fact is not None}
    always = {"largest": made.largest, "round": round_, "samples": node.length}
    return Reply(settings.client, made.message, {**always, **facts})


def handle_evaluate(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """Evaluates this client's own model and those for an unseen domain; replies with counts and figures, never with
    samples.

    If the request names the round that is selected so far, the own model is kept until another one is selected.
    """
    terms = from_words(request.terms)
    prepared = prepared_for(settings, request.terms, nodes)
    shapes = unseen_shapes(prepared.agreed.method, federation_of(terms, no_samples(terms)))
    sent, models = (without_prefix(part, request.arrays) for part in (OWN, UNSEEN))
    unseen = checked_tree(models, shapes, FROM_SERVER) if models else None
    own = None
    if prepared.node is not None:
        file = state_file(settings, terms)
        own = model_of(prepared.node, sent, accepted_by(settings, request, file), read_kept(file))
        if keeps_state(terms.config.selection):
            facts = facts_of_model(terms, int(request.facts["round"]), settings.client) | facts_of_run(request)
            keep_model(file.parent, own, int(request.facts[SELECTED]), facts)
    found = prepared.evaluation()(own, unseen, int(request.facts["round"]))
    grouped = {GROUPS: json.dumps(found.units)} if terms.config.data.group else {}
    return Reply(settings.client, found.arrays, {"withheld": ",".join(found.withheld), **grouped})


def handle_finish(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """After the last round: writes the model that predicts for this client to the client's own folder, that of the
    selected round if the request names one; replies with that round, `NEVER` for the last one, which is also written
    where this client was not asked to evaluate the selected one, or could not."""
    terms = from_words(request.terms)
    node, file = node_of(settings, request.terms, nodes), state_file(settings, terms)
    written, chosen = file.parent / MODEL, int(request.facts[SELECTED])
    if chosen != NEVER and (kept := kept_model(file.parent, chosen, request)) is not None:
        write_bytes(written, kept.read_bytes())
        return Reply(settings.client, {}, {"written": True, SELECTED: chosen})
    own = model_of(node, request.arrays, accepted_by(settings, request, file), read_kept(file))
    write_model(written, own, facts_of_model(terms, int(request.facts["round"]), settings.client))
    if chosen not in (NEVER, int(request.facts["round"])):
        logging.getLogger("fdgjax").warning("%s holds %s", written, instead_of(chosen))
    return Reply(settings.client, {}, {"written": True, SELECTED: NEVER})


def instead_of(chosen: int) -> str:
    """What a client has that did not evaluate the selected round."""
    return f"the last round's model, as the selected one, of round {chosen}, was not evaluated here"


ACTIONS: Mapping[str, Callable[[NodeSettings, Request, dict[str, Prepared]], Reply]] = {
    "join": handle_join,
    "describe": handle_describe,
    "train": handle_train,
    "evaluate": handle_evaluate,
    "finish": handle_finish,
}
"""A node's handlers, by a request's `action`."""


def accepted_by(settings: NodeSettings, request: Request, file: Path) -> int:
    """The round of the row to continue from; `NEVER` for a node with `fresh` that has no state."""
    return NEVER if settings.fresh and not file.exists() else int(request.facts["accepted"])


def prepared_for(settings: NodeSettings, words: str, nodes: dict[str, Prepared]) -> Prepared:
    """What the node makes for these terms; made again where its samples' files have changed. Only the last is kept."""
    terms, places = from_words(words), settings.places
    files = [version_of(place, terms) for place in (places.samples, places.held_out) if place is not None]
    key = repr((settings, words, files))
    if key not in nodes:
        agreed = agree(terms)
        parts = own_parts(places, terms, settings.client, settings.states)
        made = Prepared(
            agreed,
            guarded_node(settings, agreed, parts.train) if settings.client != terms.unseen else None,
            cache(partial(make_evaluate, agreed, parts, settings.client, settings.smallest)),
        )
        nodes.clear()
        nodes[key] = made
    return nodes[key]


def guarded_node(settings: NodeSettings, agreed: Agreed, own: OwnSamples) -> Node:
    """The node that trains on these samples, with their guard where they are protected."""
    run, client = state_file(settings, agreed.terms).parent.name, settings.client
    guard = guard_of_node(agreed, client, len(own.labels), settings.states, run, settings.epsilon)
    return make_node(agreed, client, own, guard)


def node_of(settings: NodeSettings, words: str, nodes: dict[str, Prepared]) -> Node:
    """The node for these terms.

    Raises:
      UserError: it is the unseen party, which trains nothing.
    """
    node = prepared_for(settings, words, nodes).node
    if node is None:
        raise UserError(f"client {settings.client} is unseen and trains nothing; expected a request to evaluate")
    return node
