"""A node's request handlers, which work on its own folders; each request may run in a new process."""

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.config import experiment_identity, to_plain
from fdgjax.contract import PyTree
from fdgjax.data.encoding import to_plain as encoding_to_plain
from fdgjax.deploy.evaluation import SMALLEST, Evaluate, make_evaluate, unseen_shapes
from fdgjax.deploy.message_log import MESSAGES, NODE, RECEIVED, SENT, log_message
from fdgjax.deploy.node import FROM_SERVER, NEVER, Node, NodeState, answer, checked_leaves, make_node, model_of
from fdgjax.deploy.own_samples import OwnPlaces, count_trained, own_parts, version_of
from fdgjax.deploy.placement import with_leaves
from fdgjax.deploy.privacy import guard_of_node, refuse_uncovered
from fdgjax.deploy.statistics import of_party
from fdgjax.deploy.terms import Agreed, OwnSamples, Terms, agree, federation_of, from_words, no_samples
from fdgjax.deploy.wire import OWN, SELECTED, UNSEEN, Reply, Request
from fdgjax.run.compilation_cache import jax_events
from fdgjax.run.selected import keeps_state
from fdgjax.utils.errors import UserError, system_words
from fdgjax.utils.files import make_folder, write_bytes
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten

START_AGAIN = "start the run again; the node keeps its state"
"""What mends a run that a node's system error ended."""
COMPILED = "/jax/compilation_cache/cache_misses"
"""JAX's monitoring event for a program that is not in its persistent cache."""


class NodeSettings(NamedTuple):
    """A client's own settings.

    client: its number. samples: the folder of its images, or its table. states: the folder of its state between rounds,
    and of compiled programs. fresh: whether it starts from its initial row if its folder has no state.
    held_out: samples for evaluation alone, placed as `samples` are; None to hold some of these out. whole: whether it
    trains on all and evaluates on none. smallest: of fewer samples the node sends no counts.
    epsilon: how much privacy all its answers may cost together, in every experiment; 0 for no limit of its own.
    """

    client: int
    samples: Path
    states: Path
    fresh: bool = False
    held_out: Path | None = None
    whole: bool = False
    smallest: int = SMALLEST
    epsilon: float = 0.0

    @property
    def places(self) -> OwnPlaces:
        """Where its samples are."""
        return OwnPlaces(self.samples, self.held_out, self.whole)


class Prepared(NamedTuple):
    """What a node has made for some terms: its training, None for the unseen party, and its evaluation."""

    agreed: Agreed
    node: Node | None
    evaluate: Evaluate


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
        reply = reply_to(settings, request, nodes)
        log_message(log, NODE, SENT, settings.client, request, reply)
    except UserError as error:
        return Reply(settings.client, {}, {}, str(error))
    return reply


def reply_to(settings: NodeSettings, request: Request, nodes: dict[str, Prepared] | None) -> Reply:
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
    """Trains one round; replies with the message, the message's largest magnitude, and the mean loss or, where samples
    are protected, the epsilon spent. The row stays here."""
    node, file = node_of(settings, request.terms, nodes), state_file(settings, from_words(request.terms))
    round_, accepted = int(request.facts["round"]), accepted_by(settings, request, file)
    elsewhere = frozenset(json.loads(str(request.facts["elsewhere"])))
    made, kept = answer(node, request.arrays, round_, accepted, elsewhere, read_kept(file))
    refuse_older(file, settings.client, round_, request.run)
    write_kept(file, kept._replace(run=request.run))
    told = {"loss": made.loss, "privacy_epsilon": made.epsilon}
    facts = {name: fact for name, fact in told.items() if fact is not None}
    return Reply(settings.client, made.message, {"largest": made.largest, "round": round_, **facts})


def handle_evaluate(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """Evaluates this client's own model and those for an unseen domain; replies with counts alone, never with samples.

    If the request names the round that is selected so far, the own model is kept until another one is selected.
    """
    terms = from_words(request.terms)
    prepared = prepared_for(settings, request.terms, nodes)
    shapes = unseen_shapes(prepared.agreed.method, federation_of(terms, no_samples(terms)))
    sent, models = (
        {path.removeprefix(part): leaf for path, leaf in request.arrays.items() if path.startswith(part)}
        for part in (OWN, UNSEEN)
    )
    unseen = with_leaves(shapes, checked_leaves(models, shapes, FROM_SERVER), lambda leaf: leaf) if models else None
    own = None
    if prepared.node is not None:
        file = state_file(settings, terms)
        own = model_of(prepared.node, sent, accepted_by(settings, request, file), read_kept(file))
        if keeps_state(terms.config.selection):
            keep_model(file.parent, own, int(request.facts["round"]), int(request.facts[SELECTED]))
    found = prepared.evaluate(own, unseen, int(request.facts["round"]))
    return Reply(settings.client, found.arrays, {"withheld": ",".join(found.withheld)})


def keep_model(folder: Path, own: PyTree, round_: int, selected: int) -> None:
    """Writes the model of a round, and removes all others but the one of the round that is selected so far."""
    write_model(model_file(folder, round_), own)
    for file in folder.glob(model_file(folder, 0).name.replace("0", "*")):
        if file not in (model_file(folder, round_), model_file(folder, selected)):
            file.unlink(missing_ok=True)


def model_file(folder: Path, round_: int) -> Path:
    """The model of an evaluated round, kept until the run's end."""
    return folder / f"evaluated-{round_}.safetensors"


def finish(settings: NodeSettings, request: Request, nodes: dict[str, Prepared]) -> Reply:
    """After the last round: writes the model that predicts for this client to the client's own folder, that of the
    selected round if the request names one."""
    node, file = node_of(settings, request.terms, nodes), state_file(settings, from_words(request.terms))
    written, chosen = file.parent / "model.safetensors", int(request.facts[SELECTED])
    if chosen != NEVER and (kept := model_file(file.parent, chosen)).exists():
        write_bytes(written, kept.read_bytes())
        return Reply(settings.client, {}, {"written": True})
    write_model(written, model_of(node, request.arrays, accepted_by(settings, request, file), read_kept(file)))
    return Reply(settings.client, {}, {"written": True})


def write_model(file: Path, variables: PyTree) -> None:
    """Writes a model's variables by their paths."""
    from safetensors.numpy import save

    model = flatten(jax.device_get(variables))
    write_bytes(file, save({path: np.ascontiguousarray(leaf) for path, leaf in model.items()}))


ACTIONS: Mapping[str, Callable[[NodeSettings, Request, dict[str, Prepared]], Reply]] = {
    "join": handle_join,
    "describe": handle_describe,
    "train": handle_train,
    "evaluate": handle_evaluate,
    "finish": finish,
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
            make_evaluate(agreed, parts, settings.client, settings.smallest),
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


def state_file(settings: NodeSettings, terms: Terms) -> Path:
    """The file of this experiment's state; an experiment with other terms has another file."""
    plain = {**experiment_identity(to_plain(terms.config)), "rounds": 0}
    identity = (plain, terms.class_names, terms.sample_shape, terms.clients, terms.columns, terms.unseen)
    encoding = "" if terms.encoding is None else repr(encoding_to_plain(terms.encoding))
    digest = hashlib.sha256(repr((*identity, encoding)).encode()).hexdigest()[:16]
    return settings.states / f"{digest}-client{settings.client}" / "state.npz"


def refuse_older(file: Path, client: int, round_: int, run: str) -> None:
    """Raises a `UserError` if the node has trained a later round of the same run: a request that is delivered once more
    after it must not replace the state of the later round."""
    kept = read_kept(file)
    if kept and kept.run == run and kept.trained > round_:
        raise UserError(
            f"client {client} got the request of round {round_ + 1} and has trained round {kept.trained + 1}; expected "
            "a later one; nothing is to be done: an old message came once more, and the state stays as it is"
        )


def read_kept(file: Path) -> NodeState | None:
    """What `write_kept` wrote; None if there is no file.

    Raises:
      UserError: a damaged file.
    """
    if not file.exists():
        return None
    try:
        with np.load(file, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(
            f"{file} is damaged ({type(error).__name__}); expected what this node wrote; restore it from a copy, or "
            "remove it and start the node with fresh=true"
        ) from error
    accepted, trained = (int(number) for number in arrays.pop("rounds"))
    run = str(arrays.pop("run", ""))
    before, after = (
        {key.removeprefix(side): leaf for key, leaf in arrays.items() if key.startswith(side)}
        for side in ("before", "after")
    )
    return NodeState(accepted, before, trained, after, run)


def write_kept(file: Path, kept: NodeState) -> None:
    """Writes what the node keeps, atomically and with the checksums of the zip format."""
    make_folder(file.parent)
    encoded = io.BytesIO()
    sides: dict[str, Any] = {f"before{path}": leaf for path, leaf in kept.before.items()}
    sides |= {f"after{path}": leaf for path, leaf in kept.after.items()}
    np.savez(
        encoded, allow_pickle=False, rounds=np.array([kept.accepted, kept.trained]), run=np.array(kept.run), **sides
    )
    write_bytes(file, encoded.getvalue())
