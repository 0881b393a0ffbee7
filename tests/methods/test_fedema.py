"""FedEMA: what a client starts from, against NumPy, and what it reduces to; and the reference without federation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import PyTree, Variables
from fdgjax.engine import State
from tests.toys import (
    Case,
    build,
    close,
    flat,
    lengths_for,
    make_case,
    make_plan,
    row,
    shared_case,
    tolerance,
    toy_federation,
)

WHOLE = make_plan("map", drop_nonfinite=True)


def case_of(model: str = "dense", **chosen: object) -> Case:
    federation = toy_federation(lengths_for("fedema"))
    return make_case(build("fedema", federation, model, **chosen), federation, WHOLE)


def starts(case: Case, state: State, client: int) -> Variables:
    kept = row(state.clients, client)
    return case.method.start(case.method.send(state.server, kept), kept)


def apart(left: PyTree, right: PyTree) -> float:
    """Over everything but predictors."""

    def model(params: PyTree) -> PyTree:
        inner = {name: leaf for name, leaf in params["projector"].items() if not name.startswith("predictor")}
        return {**params, "projector": inner}

    return float(np.linalg.norm(flat(model(left)) - flat(model(right))))


@pytest.mark.slow
def test_a_client_starts_from_the_global_model_then_from_tau_of_its_own_then_from_what_the_distance_says() -> None:
    case, lambdas = shared_case("fedema", plan=WHOLE), np.zeros(4)
    for rounds in range(4):
        state = case.advance(rounds)
        server = state.server.variables["params"]
        for client in case.everyone:
            own = row(state.clients.more.params, client)
            if rounds == 1:
                lambdas[client] = 0.7 / apart(server, own)
            share = min(lambdas[client] * apart(server, own), 1)
            wanted = share * flat(own) + (1 - share) * flat(server)
            found = flat(starts(case, state, client)["params"])
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            if rounds > 1:
                assert share > 0


@pytest.mark.slow
def test_a_client_remembers_what_it_sent_statistics_come_from_the_server() -> None:
    case = case_of("norm")
    state = case.advance(2)
    shares = case.federation.train.length / jnp.sum(case.federation.train.length)
    mean = jax.tree.map(lambda leaf: jnp.tensordot(shares, leaf, axes=1), state.clients.more.params)
    close(mean, state.server.variables["params"])
    sent = starts(case, state, 1)
    jax.tree.map(np.testing.assert_array_equal, sent["batch_stats"], state.server.variables["batch_stats"])


@pytest.mark.slow
def test_with_tau_zero_clients_start_from_the_mean() -> None:
    case = case_of(tau=0.0)
    state = case.advance(2)
    for client in case.everyone:
        sent = starts(case, state, client)
        jax.tree.map(np.testing.assert_array_equal, sent["params"], state.server.variables["params"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedsimclr", "fedmoco", "fedbyol"])
def test_pooled_it_is_one_client_that_has_everything(name: str) -> None:
    federation = toy_federation(lengths_for(name))
    method = build(name, federation, pooled=True)
    assert method.pooled
    case = make_case(method, federation, WHOLE)
    assert len(case.everyone) == 1
    state = case.advance(2)
    alone = make_case(build(name, case.federation), case.federation, plan=WHOLE).advance(2)
    close(state.server, alone.server, **tolerance(name))
