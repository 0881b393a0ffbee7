"""FedGMA's laws: FedAvg without a threshold, the mask by hand, statistics that are averaged."""

import jax
import numpy as np
import pytest

from tests.toys import FULL_LENGTHS, build, close, flat, make_case, make_plan, shared_case, toy_federation

pytestmark = pytest.mark.slow

WHOLE = make_plan(drop_nonfinite=True)


def test_without_a_threshold_it_is_fedavg() -> None:
    bare = make_case(build("fedgma", toy_federation(), tau=0.0))
    close(bare.advance(3).server, shared_case("fedavg", plan=WHOLE).advance(3).server)


def test_the_server_takes_the_masked_mean_of_what_clients_did() -> None:
    locally = shared_case("local", plan=WHOLE).advance(1).clients.local["params"]
    case = shared_case("fedgma", plan=WHOLE)
    start = case.start().server.variables["params"]
    share = np.asarray(toy_federation().train.length, np.float64)

    def one(before: jax.Array, after: jax.Array) -> np.ndarray:
        updates = np.asarray(after, np.float64) - np.asarray(before, np.float64)
        mean, agreement = (np.tensordot(share / share.sum(), u, 1) for u in (updates, np.sign(updates)))
        agreement = np.abs(agreement)
        return np.asarray(before) + np.where(agreement >= 0.7, 1, agreement) * mean

    wanted = jax.tree.map(one, start, locally)
    close(case.advance(1).server.variables["params"], wanted)
    fedavg = shared_case("fedavg", plan=WHOLE).advance(1).server.variables["params"]
    assert not np.allclose(flat(wanted), flat(fedavg), rtol=0, atol=1e-3)


def test_statistics_are_averaged() -> None:
    federation = toy_federation(FULL_LENGTHS)
    masked, plain = (make_case(build(name, federation, "norm"), federation).advance(1) for name in ("fedgma", "fedavg"))
    close(masked.server.variables["batch_stats"], plain.server.variables["batch_stats"])
    assert not np.allclose(flat(masked.server), flat(plain.server), rtol=0, atol=1e-3)
