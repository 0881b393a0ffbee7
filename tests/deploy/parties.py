"""A server and nodes in one process, each with its own samples, and the simulation of the same federation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fdgjax.config import Config
from fdgjax.contract import Method, Model
from fdgjax.data.federation import Federation, Rows, without_labels
from fdgjax.deploy.account import Guard
from fdgjax.deploy.node import Answer, Node, NodeState, answer, make_node
from fdgjax.deploy.server import DeployedRound, DeployedState, ServerPrograms, begin_round, finish_round, make_server
from fdgjax.deploy.terms import Agreed, OwnSamples, Terms
from fdgjax.engine import State
from fdgjax.engine.privacy.noise import Privacy
from fdgjax.methods import METHODS
from tests.deploy.trial import Difference, difference
from tests.toy_models import IMAGE
from tests.toys import INIT, Case, build, lengths_for, make_case, make_plan, toy_federation

PARTIES = 2
POOLED = {"central", "coral", "fish", "fishr", "groupdro", "irm", "mixup", "mmd", "vrex"}
DEPLOYED = sorted(set(METHODS) - POOLED)


class Parties(NamedTuple):
    """The parties of a method's deployment, and its simulation."""

    server: ServerPrograms
    nodes: list[Node]
    case: Case
    lengths: np.ndarray


def own(federation: Federation, rows: Rows, place: int) -> OwnSamples:
    places, lengths = (np.asarray(leaf) for leaf in rows)
    here = places[place][: int(lengths[place])]
    return OwnSamples(np.asarray(federation.inputs)[here], np.asarray(federation.labels)[here])


def parties(
    name: str,
    privacy: Privacy | None = None,
    guards: Sequence[Guard | None] = (None,) * (PARTIES + 1),
    change: Callable[[Method], Method] = lambda method: method,
    model: str | Model = "",
    **plan: Any,
) -> Parties:
    """The method on a toy federation whose ids are the positions, as a deployment numbers its clients.

    With `privacy` weights are equal; `guards` are the nodes' and the server's. Without `model` the network has
    BatchNorm where it can be trained.
    """
    federation = toy_federation(lengths_for(name)[:PARTIES])
    federation = federation._replace(ids=jax.device_put(np.arange(PARTIES, dtype=np.int32)))
    model = model or ("dense" if METHODS[name].unit or privacy else "norm")
    method = change(build(name, federation, model, **({"weighting": "uniform"} if privacy else {})))
    terms = Terms(Config(), ("a", "b", "c"), IMAGE, PARTIES)
    plan_of = make_plan(epochs=1, **plan)._replace(privacy=privacy)
    agreed = Agreed(terms, method, plan_of, None)  # type: ignore[arg-type]  # nothing is evaluated
    nothing = OwnSamples(np.zeros((0, *IMAGE), np.uint8), np.zeros(0, np.int32))
    server = make_server(agreed, own(federation, federation.server, 0) if method.server_training else nothing)
    server = server._replace(guard=guards[PARTIES])
    nodes = [
        make_node(agreed, client, own(federation, federation.train, client), guards[client])
        for client in range(PARTIES)
    ]
    simulated = without_labels(federation) if method.server_training else federation
    case = make_case(method, simulated, agreed.plan)
    return Parties(server, nodes, case, np.asarray(federation.train.length))


def one_round(
    those: Parties, held: DeployedState, kept: Mapping[int, NodeState], absent: frozenset[int] = frozenset()
) -> tuple[DeployedRound, dict[int, NodeState]]:
    """A round, and what the nodes keep; the messages of those `absent` do not arrive."""
    sending, told, after = begin_round(those.server, held), dict[int, Answer](), dict(kept)
    for who, sent in zip(sending.who, sending.sent, strict=True):
        client, accepted = int(who), int(held.accepted[who])
        told[client], after[client] = answer(
            *(those.nodes[client], sent, int(held.state.round), accepted),
            *(those.server.placement.written, kept.get(client)),
        )
    arrived = {client: one.message for client, one in told.items() if client not in absent}
    return finish_round(those.server, held, sending, arrived), after


def simulated(those: Parties, rounds: int) -> State:
    state = INIT(those.case.method, those.case.federation, 0)
    for _ in range(rounds):
        state, _ = those.case.round(state, those.case.federation)
    return state


def apart(those: Parties, held: DeployedState, kept: Mapping[int, NodeState], state: State) -> Difference:
    each = [kept[client] for client in range(PARTIES)]
    return difference(those.server, held, each, state)
