"""What the server sends to clients, and the models that it can compute itself."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import jax
import numpy as np

from fdgjax.contract import PyTree
from fdgjax.deploy.leaves import Leaves, blank, by_path, with_leaves
from fdgjax.deploy.server import DeployedState, ServerPrograms
from fdgjax.deploy.terms import to_words
from fdgjax.deploy.wire import Fact, Request


def requests_of(
    server: ServerPrograms,
    held: DeployedState,
    action: str,
    who: Sequence[int] | np.ndarray,
    sent: Sequence[Leaves],
    more: Mapping[str, Fact] = MappingProxyType({}),
) -> list[Request]:
    """The requests of a round to the engine's clients `who`; `more` are further facts."""
    terms, words = server.agreed.terms, to_words(server.agreed.terms)
    elsewhere = json.dumps(sorted(server.placement.written))
    return [
        Request(
            action=action,
            client=terms.trained[int(client)],
            terms=words,
            arrays=leaves,
            facts={
                "round": int(held.state.round),
                "accepted": int(held.accepted[int(client)]),
                "elsewhere": elsewhere,
                **more,
            },
        )
        for client, leaves in zip(who, sent, strict=True)
    ]


def sent_to(server: ServerPrograms, held: DeployedState, client: int) -> Leaves:
    """What a client would be sent in a further round."""
    own = {path: leaf[client] for path, leaf in held.state.clients.items()}
    row = with_leaves(server.shapes.context.client, own, blank)
    return by_path(jax.device_get(server.agreed.method.send(held.state.server, row)))


def unseen_models(server: ServerPrograms, held: DeployedState) -> PyTree:
    """The models for an unseen domain, `[models, ...]`, if the server alone can compute them."""
    count = server.agreed.terms.clients
    like = server.shapes.context.client
    rows = with_leaves(like, held.state.clients, lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype))
    return jax.device_get(server.agreed.method.unseen(held.state.server, rows))
