"""FedOMG's laws: FedAvg without a radius, the matched step of what clients did, statistics that are averaged."""

import jax
import numpy as np
import pytest

from fdgjax.aggregation import gradient_matching
from tests.toys import FULL_LENGTHS, build, close, flat, make_case, make_plan, shared_case, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


def test_without_a_radius_it_is_fedavg() -> None:
    bare = make_case(build("fedomg", toy_federation(), kappa=0.0))
    close(bare.advance(2).server, shared_case("fedavg", plan=WHOLE).advance(2).server)


def test_the_server_takes_the_matched_step_of_what_clients_did() -> None:
    locally = shared_case("local", plan=WHOLE).advance(1).clients.local["params"]
    case = shared_case("fedomg", plan=WHOLE)
    start = case.start().server.variables["params"]
    updates = jax.tree.map(lambda before, after: np.asarray(after) - np.asarray(before), start, locally)
    step, _ = gradient_matching(updates, toy_federation().train.length, kappa=0.5)
    wanted = jax.tree.map(lambda before, move: np.asarray(before) + np.asarray(move), start, step)
    close(case.advance(1).server.variables["params"], wanted, rtol=1e-3, atol=1e-4)
    fedavg = shared_case("fedavg", plan=WHOLE).advance(1).server.variables["params"]
    assert not np.allclose(flat(wanted), flat(fedavg), rtol=0, atol=1e-3)


@pytest.mark.slow
def test_statistics_are_averaged() -> None:
    federation = toy_federation(FULL_LENGTHS)
    mine, plain = (make_case(build(name, federation, "norm"), federation).advance(1) for name in ("fedomg", "fedavg"))
    close(mine.server.variables["batch_stats"], plain.server.variables["batch_stats"])
    assert not np.allclose(flat(mine.server), flat(plain.server), rtol=0, atol=1e-3)
