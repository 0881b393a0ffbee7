"""Judging a client by what it trained last: other predictions, the same training."""

import jax
import numpy as np
import pytest

from fdgjax.contract import PyTree
from fdgjax.engine import State
from fdgjax.methods.parts.evaluated_models import CLIENT_MODELS, as_received, as_trained
from tests.marks import mostly_slow
from tests.toys import Case, build, close, flat, make_case, make_plan, shared_case, toy_federation

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "central"])
def test_a_method_with_one_global_model_stays_as_it_is(name: str) -> None:
    method = build(name, toy_federation())
    assert method.trained is None
    assert as_trained(method) is as_received(method) is method


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(("fdse", "ditto"), ("ditto",)))
def test_training_is_the_same_and_predictions_are_those_before_aggregation(name: str) -> None:
    method = build(name, toy_federation(), "dense")
    received, trained = (make_case(kind(method), plan=WHOLE) for kind in (as_received, as_trained))
    start, other = received.start(), trained.start()
    close(jax.vmap(trained.method.predict, (None, 0))(other.server, other.clients), predictions(received, start))
    state, other = received.advance(2), trained.advance(2)
    close(other.server, state.server, rtol=1e-2, atol=5e-3)
    close(other.clients.base, state.clients, rtol=1e-2, atol=5e-3)
    apart = flat(predictions(trained, other)) - flat(predictions(received, state))
    assert (np.abs(apart).max() > 1e-3) == (name == "fdse"), "Ditto's personal model is not aggregated"


def predictions(case: Case, state: State) -> PyTree:
    return jax.vmap(case.method.predict, (None, 0))(state.server, state.clients)


@pytest.mark.slow
def test_a_client_alone_is_what_it_trained() -> None:
    local = shared_case("local", plan=WHOLE)
    judged = make_case(as_trained(build("local", toy_federation())), plan=WHOLE)
    close(predictions(judged, judged.advance(2)), predictions(local, local.advance(2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedbyol", "fedmoco", "fedema"])
def test_what_a_target_follows_is_judged_and_not_the_target(name: str) -> None:
    """The server's model is what the only client trained; target and queue predict nothing."""
    method, federation = build(name, toy_federation((8,))), toy_federation((8,))
    received, trained = (make_case(kind(method), federation, WHOLE) for kind in (as_received, as_trained))
    close(predictions(trained, trained.advance(1)), predictions(received, received.advance(1)))


def test_both_ways_are_enrolled() -> None:
    assert dict(CLIENT_MODELS) == {"received": as_received, "trained": as_trained}
