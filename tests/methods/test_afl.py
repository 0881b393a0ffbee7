"""AFL's laws: FedAvg with the given weights without a rate, the benchmark's mixtures, the losses of real models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import ServerStep
from fdgjax.engine.traffic import traffic
from fdgjax.utils.variables import bytes_of
from tests.conformance import torch_numbers
from tests.methods.test_feddg_ga import mean_loss
from tests.toys import (
    CLIENTS,
    build,
    close,
    copy,
    flat,
    make_case,
    make_plan,
    poison,
    shared_case,
    shared_method,
    toy_federation,
)

WHOLE = make_plan(drop_nonfinite=True)


@pytest.mark.slow
def test_without_a_rate_it_is_fedavg_with_the_given_weights_and_so_it_is_in_the_first_round() -> None:
    for weighting in ("uniform", "samples"):
        fedavg = make_case(build("fedavg", toy_federation(), weighting=weighting))
        still = make_case(build("afl", toy_federation(), weighting=weighting, rate=0.0))
        close(still.advance(2).server.base, fedavg.advance(2).server)
    fedavg = make_case(build("fedavg", toy_federation(), weighting="uniform"))
    case = make_case(build("afl", toy_federation(), rate=0.5))
    close(case.advance(1).server.base, fedavg.advance(1).server)
    assert not np.allclose(flat(case.advance(2).server.base), flat(fedavg.advance(2).server), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_mixtures_are_the_benchmarks() -> None:
    stored = torch_numbers("afl")
    method = build("afl", toy_federation(), rate=float(stored["rate"]))
    server, clients = method.init(jax.random.key(0), toy_federation())
    still = jax.tree.map(
        lambda leaf: jnp.zeros((CLIENTS, *leaf.shape), leaf.dtype), traffic(method, toy_federation()).message
    )
    for losses, wanted in zip(stored["losses"], stored["mixtures"], strict=True):
        step, info = method.aggregate(server, clients, still._replace(more=jnp.float32(losses)), jnp.ones(CLIENTS))
        np.testing.assert_allclose(info["weights"], server.more, atol=1e-6)
        server, clients = method.update(server, clients, step, ServerStep(jnp.int32(0), jax.random.key(0)))
        np.testing.assert_allclose(server.more, wanted, atol=1e-6)


@pytest.mark.slow
def test_losses_are_the_received_models_and_a_client_outside_the_round_has_none() -> None:
    case = shared_case("afl", plan=WHOLE)
    state = case.advance(1)
    received, before = copy(state.server.base.variables), np.array(state.server.more)
    state, info = case.round(state, poison(case.federation, 1))
    losses = np.array([mean_loss(received, client) for client in range(CLIENTS)])
    ascended = before + 0.01 * np.where(np.arange(CLIENTS) == 1, 0, losses)
    # All entries stay positive: the projection subtracts the same from each.
    np.testing.assert_allclose(state.server.more, ascended - (ascended.sum() - 1) / CLIENTS, rtol=1e-5)
    weights = np.where(np.arange(CLIENTS) == 1, 0, before)
    np.testing.assert_allclose(info.coefficients["weights"], weights / weights.sum(), rtol=1e-5)


@pytest.mark.slow
def test_clients_that_the_mixture_left_out_change_nothing() -> None:
    method = build("afl", toy_federation())
    server, clients = method.init(jax.random.key(0), toy_federation())
    message = traffic(method, toy_federation()).message
    ones = jax.tree.map(lambda leaf: jnp.ones((2, *leaf.shape), leaf.dtype), message)
    some = clients._replace(more=clients.more[:2])
    step, _ = method.aggregate(server._replace(more=jnp.float32([0, 0, 0.4, 0.6])), some, ones, jnp.ones(2))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(step.base.update))
    np.testing.assert_allclose(step.more, [0.005, 0.005, 0.395, 0.595], atol=1e-6)


def test_one_number_more_travels() -> None:
    mine, fedavgs = (traffic(shared_method(name), toy_federation()) for name in ("afl", "fedavg"))
    assert bytes_of(mine.sent) == bytes_of(fedavgs.sent)
    assert bytes_of(mine.message) == bytes_of(fedavgs.message) + 4
