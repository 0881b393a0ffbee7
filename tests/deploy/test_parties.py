"""A server and nodes that share nothing but messages end with the simulation's numbers."""

import json
import os
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from fdgjax.contract import PyTree
from fdgjax.deploy.leaves import by_path
from fdgjax.deploy.node import NEVER, NodeState, model_of, row_after
from fdgjax.deploy.requests import sent_to
from fdgjax.deploy.server import begin_round
from fdgjax.engine import State
from fdgjax.engine.traffic import traffic
from fdgjax.utils.errors import UserError
from fdgjax.utils.variables import bytes_of
from tests.deploy.parties import DEPLOYED, PARTIES, Parties, apart, one_round, parties, simulated
from tests.marks import mostly_slow


@pytest.fixture(scope="module")
def scaffold() -> Parties:
    return parties("scaffold")


def check_method(name: str, those: Parties, rounds: int = 2) -> None:
    held, kept = those.server.first(those.lengths), dict[int, NodeState]()
    for _ in range(rounds):
        result, kept = one_round(those, held, kept)
        held = result.held
    state = simulated(those, rounds)
    found = apart(those, held, kept, state)
    for client, expected in enumerate(own_models(those, state)):
        model = model_of(those.nodes[client], sent_to(those.server, held, client), rounds - 1, kept[client])
        chex.assert_trees_all_equal_structs(model, expected)
        chex.assert_trees_all_close(model, expected, atol=2e-4 * max(1, found.largest))
    note({"method": name, **found._asdict()})
    assert max(found.server, found.rows) <= 2e-4 * max(1, found.largest)
    assert found.largest > 0


def own_models(those: Parties, state: State) -> list[PyTree]:
    """The variables that predict for each client, in the simulation."""
    rows = [jax.tree.map(lambda leaf, client=client: leaf[client], state.clients) for client in range(PARTIES)]
    return [those.case.method.predict(state.server, row) for row in rows]


def note(figures: dict[str, str | float]) -> None:
    """For the table of docs/deployment.md: FDGJAX_NOTE names a file."""
    if file := os.environ.get("FDGJAX_NOTE"):
        with Path(file).open("a") as lines:
            lines.write(json.dumps(figures) + "\n")


@pytest.mark.parametrize("name", mostly_slow(DEPLOYED, ()))
def test_every_method_ends_with_the_simulations_numbers(name: str) -> None:
    those = parties(name)
    check_method(name, those)
    local = [path for path in by_path(those.server.shapes.context.client) if ".local" in path]
    assert not those.server.placement.server.intersection(local)
    sent, message = those.server.shapes.sent, those.server.shapes.message
    shapes = traffic(those.case.method, those.case.federation)
    assert (bytes_of(sent), bytes_of(message)) == (bytes_of(shapes.sent), bytes_of(shapes.message))


@pytest.mark.slow
def test_a_method_with_state_at_both_sides_ends_with_the_simulations_numbers(scaffold: Parties) -> None:
    check_method("scaffold", scaffold)


@pytest.mark.slow
def test_what_is_sent_has_the_bytes_that_the_simulation_reports(scaffold: Parties) -> None:
    held = scaffold.server.first(scaffold.lengths)
    sending = begin_round(scaffold.server, held)
    shapes = traffic(scaffold.case.method, scaffold.case.federation)
    assert {bytes_of(sent) for sent in sending.sent} == {bytes_of(shapes.sent)}


@pytest.mark.slow
def test_a_message_that_does_not_arrive_leaves_no_trace(scaffold: Parties) -> None:
    """The client trains, the server goes on without it, and the next round is as if it had not trained."""
    first = scaffold.server.first(scaffold.lengths)
    without, kept = one_round(scaffold, first, {}, absent=frozenset({1}))
    assert list(without.held.accepted) == [0, NEVER]
    after, kept = one_round(scaffold, without.held, kept)
    never_asked, others = one_round(scaffold, without.held, {0: kept[0]._replace(trained=0, after=kept[0].before)})
    same = zip(jax.tree.leaves(after.held.state), jax.tree.leaves(never_asked.held.state), strict=True)
    assert all(np.array_equal(a, b) for a, b in same)
    assert all(np.array_equal(kept[1].after[path], leaf) for path, leaf in others[1].after.items())


@pytest.mark.slow
def test_a_server_that_falls_back_a_round_repeats_it_exactly(scaffold: Parties) -> None:
    one, kept = one_round(scaffold, scaffold.server.first(scaffold.lengths), {})
    two, later = one_round(scaffold, one.held, kept)
    again, repeated = one_round(scaffold, one.held, later)
    same = zip(jax.tree.leaves(two.held.state), jax.tree.leaves(again.held.state), strict=True)
    assert all(np.array_equal(a, b) for a, b in same)
    assert all(np.array_equal(later[0].after[path], leaf) for path, leaf in repeated[0].after.items())


def test_a_node_without_the_row_of_the_round_says_so(scaffold: Parties) -> None:
    row = by_path(scaffold.nodes[0].like)
    kept = NodeState(3, row, 4, row)
    assert row_after(scaffold.nodes[0], 3, kept) is kept.before
    for has in (None, kept):
        with pytest.raises(UserError, match="fresh=true"):
            row_after(scaffold.nodes[0], 5, has)
