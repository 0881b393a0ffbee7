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
from fdgjax.data.encoding import to_plain as encoding_to_plain
from fdgjax.deploy.node import NEVER, Node, NodeState, answer, make_node, model_of
from fdgjax.deploy.own_samples import count_samples, own_samples
from fdgjax.deploy.privacy import guard_of_node, refuse_uncovered
from fdgjax.deploy.statistics import of_party
from fdgjax.deploy.terms import Terms, agree, from_words
from fdgjax.deploy.wire import Reply, Request
from fdgjax.run.compilation_cache import jax_events
from fdgjax.utils.errors import UserError
from fdgjax.utils.files import make_folder, write_bytes
from fdgjax.utils.registry import lookup
from fdgjax.utils.variables import flatten

COMPILED = "/jax/compilation_cache/cache_misses"
"""JAX's monitoring event for a program that is not in its persistent cache."""


class NodeSettings(NamedTuple):
    """A client's own settings.

    client: its number. samples: the folder of its images, or its table. states: the folder of its state between rounds,
    and of compiled programs. fresh: whether it starts from its initial row if its folder has no state.
    epsilon: how much privacy all its answers may cost together, in every experiment; 0 for no limit of its own.
    """

    client: int
    samples: Path
    states: Path
    fresh: bool = False
    epsilon: float = 0.0


def serve(settings: NodeSettings, request: Request, nodes: dict[str, Node] | None = None) -> Reply:
    """The reply to a request; a `UserError` becomes the reply's `error`.

    Args:
      settings: the client's settings.
      request: the server's request.
      nodes: a cache of nodes by their terms, for a process that answers several requests.
    """
    begin = time.perf_counter()
    try:
        with jax_events(COMPILED) as compiled:
            handle = lookup("action", request.action, ACTIONS)
            refuse_uncovered(request.action, from_words(request.terms), settings.epsilon)
            reply = handle(settings, request, {} if nodes is None else nodes)
    except UserError as error:
        return Reply(settings.client, {}, {}, str(error))
    facts = {"seconds": time.perf_counter() - begin, "compiled": len(compiled)}
    return reply._replace(facts={**reply.facts, **facts})


def handle_join(settings: NodeSettings, request: Request, nodes: dict[str, Node]) -> Reply:
    """The number of this client's training samples; no image is decoded."""
    del nodes
    terms = from_words(request.terms)
    if not 0 <= settings.client < terms.clients:
        raise UserError(
            f"client {settings.client}; expected a number below {terms.clients}; correct client in node-config"
        )
    return Reply(settings.client, {}, {"samples": count_samples(settings.samples, terms)})


def handle_describe(settings: NodeSettings, request: Request, nodes: dict[str, Node]) -> Reply:
    """The statistics of this client's columns, by which all clients' are standardised."""
    del nodes
    terms = from_words(request.terms)
    own = own_samples(settings.samples, terms, settings.states)
    return Reply(settings.client, of_party(own, terms), {})


def handle_train(settings: NodeSettings, request: Request, nodes: dict[str, Node]) -> Reply:
    """Trains one round; replies with the message, the message's largest magnitude, and the mean loss or, where samples
    are protected, the epsilon spent. The row stays here."""
    node, file = node_of(settings, request.terms, nodes), state_file(settings, from_words(request.terms))
    round_, accepted = int(request.facts["round"]), accepted_by(settings, request, file)
    elsewhere = frozenset(json.loads(str(request.facts["elsewhere"])))
    made, kept = answer(node, request.arrays, round_, accepted, elsewhere, read_kept(file))
    write_kept(file, kept)
    told = {"loss": made.loss, "privacy_epsilon": made.epsilon}
    facts = {name: fact for name, fact in told.items() if fact is not None}
    return Reply(settings.client, made.message, {"largest": made.largest, "round": round_, **facts})


def finish(settings: NodeSettings, request: Request, nodes: dict[str, Node]) -> Reply:
    """After the last round: writes the model that predicts for this client to the client's own folder."""
    from safetensors.numpy import save

    node, file = node_of(settings, request.terms, nodes), state_file(settings, from_words(request.terms))
    accepted = accepted_by(settings, request, file)
    model = flatten(jax.device_get(model_of(node, request.arrays, accepted, read_kept(file))))
    write_bytes(file.parent / "model.safetensors", save({path: np.ascontiguousarray(x) for path, x in model.items()}))
    return Reply(settings.client, {}, {"written": True})


ACTIONS: Mapping[str, Callable[[NodeSettings, Request, dict[str, Node]], Reply]] = {
    "join": handle_join,
    "describe": handle_describe,
    "train": handle_train,
    "finish": finish,
}
"""A node's handlers, by a request's `action`."""


def accepted_by(settings: NodeSettings, request: Request, file: Path) -> int:
    """The round of the row to continue from; `NEVER` for a node with `fresh` that has no state."""
    return NEVER if settings.fresh and not file.exists() else int(request.facts["accepted"])


def node_of(settings: NodeSettings, words: str, nodes: dict[str, Node]) -> Node:
    """The node for these terms."""
    if words not in nodes:
        terms = from_words(words)
        own, agreed = own_samples(settings.samples, terms, settings.states), agree(terms)
        run = state_file(settings, terms).parent.name
        guard = guard_of_node(agreed, settings.client, len(own.labels), settings.states, run, settings.epsilon)
        nodes[words] = make_node(agreed, settings.client, own, guard)
    return nodes[words]


def state_file(settings: NodeSettings, terms: Terms) -> Path:
    """The file of this experiment's state; an experiment with other terms has another file."""
    plain = {**experiment_identity(to_plain(terms.config)), "rounds": 0}
    identity = (plain, terms.class_names, terms.sample_shape, terms.clients, terms.columns)
    encoding = "" if terms.encoding is None else repr(encoding_to_plain(terms.encoding))
    digest = hashlib.sha256(repr((*identity, encoding)).encode()).hexdigest()[:16]
    return settings.states / f"{digest}-client{settings.client}" / "state.npz"


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
    before, after = (
        {key.removeprefix(side): leaf for key, leaf in arrays.items() if key.startswith(side)}
        for side in ("before", "after")
    )
    return NodeState(accepted, before, trained, after)


def write_kept(file: Path, kept: NodeState) -> None:
    """Writes what the node keeps, atomically and with the checksums of the zip format."""
    make_folder(file.parent)
    encoded = io.BytesIO()
    sides: dict[str, Any] = {f"before{path}": leaf for path, leaf in kept.before.items()}
    sides |= {f"after{path}": leaf for path, leaf in kept.after.items()}
    np.savez(encoded, allow_pickle=False, rounds=np.array([kept.accepted, kept.trained]), **sides)
    write_bytes(file, encoded.getvalue())
